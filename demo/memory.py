"""How much memory the demo may use here, and the machine's line in the report.

Owns: reading MemAvailable, the cgroup limits above this process, and the facts of the machine.
"""
import os

MIB = 1 << 20


def meminfo(field):
    with open("/proc/meminfo", encoding="ascii") as f:
        for line in f:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


def read_number(path):
    try:
        with open(path, encoding="ascii") as f:
            return int(f.read())
    except (OSError, ValueError):       # no such file, or "max"
        return None


def cgroup_headroom():
    """The least (limit - use) of the memory cgroups this process is in (version 2), or None."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as f:
            path = next(line[4:-1].rstrip("/") for line in f if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    rooms = []
    while True:
        limit = read_number(f"/sys/fs/cgroup{path}/memory.max")
        if limit is not None:
            rooms.append(limit - (read_number(f"/sys/fs/cgroup{path}/memory.current") or 0))
        if not path:
            return min(rooms, default=None)
        path = path.rpartition("/")[0]


def available():
    rooms = [r for r in (meminfo("MemAvailable"), cgroup_headroom()) if r is not None]
    return max(0, min(rooms))


def fitting(wanted, least, factor=4):
    """(bytes, words): `wanted` if `factor` times as much is free, else scaled down; words say so."""
    free = available()
    if free >= wanted * factor:
        return wanted, None
    bytes_ = max(least, free // factor // MIB * MIB)
    return bytes_, (f"memory is short: {free // MIB} MB available, {wanted * factor // MIB} MB needed for the "
                    f"full size; scaled down from {wanted // MIB} MB to {bytes_ // MIB} MB")


def machine():
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as f:
            thp = f.read().split("[")[1].split("]")[0]
    except (OSError, IndexError):
        thp = "absent"
    return (f"Linux {os.uname().release}, {len(os.sched_getaffinity(0))} CPUs, {meminfo('MemTotal') >> 30} GB, "
            f"transparent huge pages: {thp}")
