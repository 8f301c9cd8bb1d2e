"""An hour of mixed forking under memory pressure, signals, kills and limits.

  soak.py RELEASE [SECONDS [SEED [MODES]]]     MODES: stock,auto,huge,small,live

Starts programs that know what their memory must hold (churn.c, objects.py), each in a memory
control group of its own. Meanwhile the group's limit is drawn in
and let out, and members are stopped, continued, signalled and killed. Nothing of that is an error.
These are: a wrong byte, a call that failed, a death by another signal than SIGKILL, two minutes
without a step, a helper task that nobody waits for, and what stays behind: a process, memory, a
mount, a file in /dev/shm or beside the programs.

Every run prints the line that repeats it. The order of a program's changes follows from its seed;
what signals and limits meet does not. `MODES=stock` shows what pressure alone does.
"""

import collections
import ctypes
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from group import UNLIMITED, ROOT, VERSION, Group
from remains import Zombies, level, remaining

MB = 1 << 20
STUCK = 120
HERE = os.path.dirname(os.path.abspath(__file__))
MODE_FLAGS = {"stock": None, "auto": [], "huge": ["--freeze", "eager", "--image", "huge"],
              "small": ["--freeze", "eager", "--image", "small"],
              "live": ["--freeze", "eager", "--image", "huge", "--profile", "live"]}
PYTHON = "/usr/bin/python3"
ORDINARY = 65534


def say(text):
    print(f"soak: {text}", flush=True)


class Run:
    """One program from its start to the last of its processes."""

    def __init__(self, number, chance, mode, folder, seconds):
        self.mode, self.folder, self.number = mode, folder, number
        self.chance = random.Random(chance.randrange(1 << 60))
        self.seed = self.chance.randrange(1 << 40)
        self.user = ORDINARY if os.getuid() == 0 and self.chance.randrange(3) == 0 else None
        threads = self.chance.choice((0, 0, 1, 3))
        if self.chance.randrange(5):
            words = [f"{folder}/churn", self.seed, seconds, threads, self.chance.randrange(2)]
        else:
            words = [PYTHON, f"{folder}/objects.py", self.seed, seconds, threads]
        self.words = [str(word) for word in words]
        self.errors = f"{folder}/errors.{number}"
        self.stats = f"{folder}/stats.{number}"
        self.stopped, self.tight = {}, False
        self.faults, self.fate = [], "ended"
        self.start()

    def start(self):
        flags = MODE_FLAGS[self.mode]
        command = self.words
        if flags is not None:
            command = [f"{self.folder}/odfork", "run", "--quiet", "--stats", "json",
                       "--stats-file", self.stats, *flags, "--", *command]
        self.group = Group(f"odfork-soak-{os.getpid()}-{self.number}")
        with open(self.errors, "wb") as errors:
            if self.user:
                os.fchmod(errors.fileno(), 0o666)
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                cwd=self.folder, preexec_fn=self.enter)
        self.group.leader = self.process.pid
        os.set_blocking(self.process.stdout.fileno(), False)
        self.last_step = time.monotonic()
        self.steps = 0

    def enter(self):
        self.group.enter()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until the program has its own handler
        if self.user:
            os.setgroups([])
            os.setresgid(self.user, self.user, self.user)
            os.setresuid(self.user, self.user, self.user)

    def repeat(self):
        flags = MODE_FLAGS[self.mode]
        launcher = "" if flags is None else " ".join(["odfork run", *flags, "-- "])
        words = " ".join(os.path.basename(word) for word in self.words)
        return f"{launcher}{words}{' as an ordinary user' if self.user else ''}"

    def disturb(self):
        """Something happens to it, or to one of its children."""
        for pid, since in list(self.stopped.items()):
            if time.monotonic() - since > 0.5:
                self.send(pid, signal.SIGCONT)
                del self.stopped[pid]
        what = self.chance.randrange(24)
        members = self.group.members()
        if not members:
            return
        pid = self.chance.choice(members)
        if what < 3:
            self.press()
        elif what < 9:
            self.send(pid, signal.SIGUSR1)
        elif what < 11:
            self.send(pid, signal.SIGSTOP)
            self.stopped[pid] = time.monotonic()
        elif what < 13 and pid != self.process.pid:
            self.send(pid, signal.SIGKILL)
        elif what == 13 and self.chance.randrange(25) == 0:
            self.fate = "killed"
            self.send(self.process.pid, signal.SIGKILL)

    def press(self):
        self.tight = not self.tight
        room = self.chance.randrange(8, 160) * MB
        self.group.limit(self.group.usage() + room if self.tight else UNLIMITED)

    def send(self, pid, number):
        # A number may belong to somebody else by now: only members are sent anything.
        if pid in self.group.members():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def look(self):
        """True when the first process has ended."""
        try:
            got = self.process.stdout.read(65536)
        except BlockingIOError:
            got = None
        if got:
            self.last_step = time.monotonic()
            self.steps += len(got)
        if self.process.poll() is not None:
            return True
        if time.monotonic() - self.last_step < STUCK:
            return False
        self.faults.append(f"no step for {STUCK} s: " + "; ".join(map(state, self.group.members())))
        self.end_all()
        self.process.wait()
        return True

    def end_all(self):
        deadline = time.monotonic() + 20
        while self.group.members() and time.monotonic() < deadline:
            for pid in self.group.members():
                self.send(pid, signal.SIGKILL)
            time.sleep(0.05)
            reap(self)

    def finish(self):
        self.group.limit(UNLIMITED)
        status = self.process.returncode
        if status == -signal.SIGKILL and self.fate != "killed":
            self.fate = "out of memory" if self.group.kills() else "killed"
            if not self.group.kills() and not self.faults:
                self.faults.append("killed, and nobody did")
        elif status not in (0, -signal.SIGKILL):
            self.faults.append(f"ended with status {status}")
        self.wait_for_orphans()
        with open(self.errors, "rb") as file:
            text = file.read().decode(errors="replace")
        self.faults += [line for line in text.splitlines() if "WRONG" in line][:6]
        self.process.stdout.close()
        self.check_level()

    def wait_for_orphans(self):
        """Children whose parent was killed end by themselves: their steps are counted."""
        deadline = time.monotonic() + STUCK
        while self.group.members() and time.monotonic() < deadline:
            for pid in self.stopped:
                self.send(pid, signal.SIGCONT)
            reap(self)
            time.sleep(0.05)
        if self.group.members():
            self.faults.append("left behind: " + "; ".join(map(state, self.group.members())))
            self.end_all()

    def check_level(self):
        deadline = time.monotonic() + 10
        while self.group.mapped() and time.monotonic() < deadline:
            time.sleep(0.1)
        if self.group.mapped():
            self.faults.append(f"{self.group.mapped() >> 10} kB of memory stay, of files "
                               f"{self.group.shmem() >> 10} kB")
        if not self.group.remove():
            self.faults.append("the control group cannot be removed")

    def frozen(self):
        try:
            with open(self.stats) as file:
                return json.loads(file.readline())
        except (OSError, ValueError):
            return None


def state(pid):
    """What a process that does not go on is doing."""
    def read(name):
        try:
            with open(f"/proc/{pid}/{name}") as file:
                return " ".join(file.read().split())
        except OSError:
            return "?"
    status = read("stat").rpartition(")")[2].split()[:1]
    return f"{pid} {read('comm')} {' '.join(status)} in {read('wchan')} [{read('stack')}]"


def reap(run):
    """Orphans come to this process: their exit status counts, too."""
    while True:
        try:
            done = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if done is None or any(one.process.pid == done.si_pid for one in RUNNING):
            return
        os.waitpid(done.si_pid, 0)
        if done.si_code == os.CLD_EXITED and done.si_status == 0:
            continue
        if done.si_code == os.CLD_EXITED or done.si_status != signal.SIGKILL:
            run.faults.append(f"an orphan, {done.si_pid}, ended with {done.si_status}")


RUNNING = []


def prepare(release):
    folder = tempfile.mkdtemp(prefix="odfork-soak.")
    os.chmod(folder, 0o777)
    for name in ("odfork", "libodfork.so"):
        shutil.copy(os.path.join(release, name), folder)
    shutil.copy(os.path.join(HERE, "objects.py"), folder)
    compile_it = ["cc", "-O2", "-pthread", "-o", f"{folder}/churn", f"{HERE}/churn.c"]
    subprocess.run(compile_it, check=True)
    return folder


def soak(folder, seconds, seed, modes):
    chance = random.Random(seed)
    counts = collections.Counter()
    failed, number, end = 0, 0, time.monotonic() + seconds
    zombies = Zombies()
    jobs = max(2, (os.cpu_count() or 2) // 2)
    while time.monotonic() < end or RUNNING:
        while len(RUNNING) < jobs and time.monotonic() < end:
            number += 1
            left = max(1, int(end - time.monotonic()))
            mode, lasts = chance.choice(modes), chance.randrange(5, 40)
            RUNNING.append(Run(number, chance, mode, folder, min(lasts, left)))
        select.select([run.process.stdout for run in RUNNING], [], [], 0.2)
        for run in list(RUNNING):
            run.faults += zombies.look(run.group)
            run.disturb()
            if not run.look():
                continue
            RUNNING.remove(run)
            run.finish()
            failed += report(run, counts)
        time.sleep(0.05)
    return number, failed, counts


def report(run, counts):
    stats = run.frozen()
    counts[f"{run.mode}: runs"] += 1
    counts[f"{run.mode}: {run.fate}"] += 1
    counts["steps"] += run.steps
    if stats and stats["freeze"]["count"]:
        counts[f"{run.mode}: froze"] += 1
    for fault in run.faults:
        say(f"FAULT {fault}")
    if run.faults:
        say(f"  repeat: {run.repeat()}")
    elif run.number % 20 == 0:
        say(f"{run.number} runs, {counts['steps']} steps; last: {run.repeat()}: {run.fate}")
    for name in (run.errors, run.stats):
        if os.path.exists(name):
            os.unlink(name)
    return bool(run.faults)


def main():
    release = os.path.abspath(sys.argv[1])
    given = dict(enumerate(sys.argv[2:]))
    seconds, seed = int(given.get(0) or 3600), int(given.get(1) or 0) or int(time.time())
    modes = (given.get(2) or "auto,huge,small").split(",")
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come here
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    before = level()
    folder = prepare(release)
    files = set(os.listdir(folder))
    say(f"{seconds} s, SEED={seed} MODES={','.join(modes)}, "
        + (f"control groups of version {VERSION}" if ROOT else "no control groups: no pressure"))
    try:
        runs, failed, counts = soak(folder, seconds, seed, modes)
    finally:
        for run in RUNNING:
            run.end_all()
            run.process.wait()
            run.group.remove()
        beside = set(os.listdir(folder)) - files
        shutil.rmtree(folder, ignore_errors=True)
    left = sorted(beside) + remaining(before)
    if left:
        say("FAULT stays behind: " + " ".join(left))
        failed += 1
    say("; ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    say(f"SEED={seed}: {runs} runs, {failed} with faults")
    print(f"{runs - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
