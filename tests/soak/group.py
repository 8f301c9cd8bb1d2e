"""Where the processes of one run live together: a memory control group, version 1 or 2, or, where
none may be made, a session. Says who is in it and what it holds; sets its limit."""

import os
import time

UNLIMITED = 1 << 50


def memory_root():
    """The folder below which memory groups can be made, and the version; None without."""
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split() for line in file]
    for words in mounts:
        kind = words[words.index("-") + 1]
        options = words[-1].split(",")
        if kind == "cgroup" and "memory" in options and os.access(words[4], os.W_OK):
            return words[4], 1
        control = os.path.join(words[4], "cgroup.subtree_control")
        if kind == "cgroup2" and os.access(control, os.W_OK):
            with open(control) as file:
                if "memory" in file.read().split():
                    return words[4], 2
    return None, 0


ROOT, VERSION = memory_root()


class Group:
    def __init__(self, name):
        self.leader = None
        self.folder = ROOT and os.path.join(ROOT, name)
        if self.folder:
            os.mkdir(self.folder)

    def enter(self):
        """In the new process, before it executes."""
        os.setsid()
        if self.folder:
            self.write("cgroup.procs", os.getpid())

    def write(self, name, value):
        try:
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(str(value))
            return True
        except OSError:
            return False

    def read(self, name):
        try:
            with open(os.path.join(self.folder, name)) as file:
                return file.read()
        except OSError:
            return ""

    def field(self, name, key):
        for line in self.read(name).splitlines():
            if line.split()[0] == key:
                return int(line.split()[1])
        return 0

    def limit(self, size):
        if VERSION == 1:
            self.write("memory.limit_in_bytes", size)
        elif VERSION == 2:
            self.write("memory.max", "max" if size == UNLIMITED else size)

    def usage(self):
        name = "memory.usage_in_bytes" if VERSION == 1 else "memory.current"
        return int(self.read(name) or 0) if self.folder else 0

    def shmem(self):
        """Bytes of backing files that are charged to the group."""
        return self.field("memory.stat", "shmem") if self.folder else 0

    def mapped(self):
        """Bytes of backing files and of anonymous memory; page cache is nobody's."""
        anonymous = "rss" if VERSION == 1 else "anon"
        return self.shmem() + (self.field("memory.stat", anonymous) if self.folder else 0)

    def kills(self):
        """How many of its processes the kernel killed for lack of memory."""
        name = "memory.oom_control" if VERSION == 1 else "memory.events"
        return self.field(name, "oom_kill") if self.folder else 0

    def members(self):
        if self.folder:
            return [int(word) for word in self.read("cgroup.procs").split()]
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                if session(pid) == self.leader]

    def remove(self):
        """True when nothing holds the group any more."""
        for _ in range(50):
            try:
                if self.folder:
                    os.rmdir(self.folder)
                return True
            except OSError:
                time.sleep(0.1)
        return False


def session(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rpartition(")")[2].split()
        return int(words[3]) if words[0] != "Z" else None
    except OSError:
        return None
