"""Records the cost of plain fork() of a Python process with a large dict, one JSON line per fork.

Owns: the workload (look up many keys, update some, between forks) and the measuring, as record.c
does it: one child stays alive between two forks, so pages written since the last fork are private
again.

    python3 record.py > python-dict.jsonl
"""

import json
import os
import random
import time

PAGE = 4096
ENTRIES = 1_500_000
FORKS = 120
READS_PER_FORK = 4_000
UPDATES_PER_FORK = 500


def rollup():
    """Anonymous and Private_Dirty bytes of this process."""
    found = {}
    with open("/proc/self/smaps_rollup") as lines:
        for line in lines:
            name, _, rest = line.partition(":")
            if name in ("Anonymous", "Private_Dirty"):
                found[name] = int(rest.split()[0]) * 1024
    return found["Anonymous"], found["Private_Dirty"]


def fork_waiting_child():
    """Fork a child that waits until the returned descriptor is closed; also the time fork took."""
    read_end, write_end = os.pipe()
    before = time.perf_counter_ns()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0)
    plain_ns = time.perf_counter_ns() - before
    os.close(read_end)
    return child, write_end, plain_ns


def main():
    random.seed(12345)
    table = {i: [i, str(i)] for i in range(ENTRIES)}
    records, child, release, previous = [], None, None, 0
    for _ in range(FORKS):
        anon, private = rollup()
        dirty = 0
        if child is not None:
            dirty = max(0, private - max(0, anon - previous)) // PAGE
            os.close(release)
            os.waitpid(child, 0)
        previous = anon
        child, release, plain_ns = fork_waiting_child()
        records.append({"plain_ns": plain_ns, "anon_bytes": anon, "dirty_pages": dirty})
        total = sum(table[random.randrange(ENTRIES)][0] for _ in range(READS_PER_FORK))
        for _ in range(UPDATES_PER_FORK):
            table[random.randrange(ENTRIES)][1] = str(total)
    os.close(release)
    os.waitpid(child, 0)
    for record in records:
        print(json.dumps(record, separators=(",", ":")))


main()
