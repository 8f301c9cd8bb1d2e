"""What must be as before when a run or the whole soak is over: mounts, files, helper tasks."""

import os
import time

PATIENCE = 60  # seconds in which what others made for a moment may go


def level():
    with open("/proc/self/mountinfo") as file:
        mounts = {line.split()[4] for line in file}
    # Semaphores are others': neither the programs here nor the runtime make any.
    files = {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")}
    return mounts | {f"/dev/shm/{name}" for name in files}


def remaining(before):
    deadline = time.monotonic() + PATIENCE
    while level() - before and time.monotonic() < deadline:
        time.sleep(1)
    return sorted(level() - before)


class Zombies:
    """Dead children without an exit signal: no wait of the program's finds them, so the runtime
    must. One that is seen for ten seconds stays."""

    SECONDS = 10

    def __init__(self):
        self.since, self.looked = {}, {}

    def look(self, group):
        """The faults found in a group; asked at most once a second."""
        now = time.monotonic()
        if now - self.looked.get(group, 0) < 1:
            return []
        self.looked[group] = now
        members = set(group.members())
        dead = {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                if helper_of(pid) in members}
        for pid in dead:
            self.since.setdefault(pid, now)
        faults = []
        for pid in list(self.since):
            if pid in dead and now - self.since[pid] > self.SECONDS:
                faults.append(f"a dead helper, {pid}, that nobody waits for")
                self.since[pid] = now + 3600
            elif pid not in dead and not os.path.exists(f"/proc/{pid}"):
                del self.since[pid]
        return faults


def helper_of(pid):
    """The parent of a zombie without an exit signal; None for all others."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return int(words[1]) if words[0] == "Z" and words[35] == "0" else None
