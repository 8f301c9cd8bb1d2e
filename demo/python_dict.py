"""A python3 process that holds a big dict and forks; it knows nothing of odfork.

Owns: the dict, fork and reap of one child, the clock. Usage: python_dict.py [BYTES]; then on stdin
  idle SEED      fork; the child checks 100 entries and leaves; reap
  busy SEED      first read 2,000 entries and replace 20 in the parent, then as idle
  burst SEED K   K cycles of busy, one wall-clock time over all of them
  verify | quit
and on stdout, times in microseconds (TOTAL of busy starts before the parent's own work):
  ready BYTES ENTRIES INIT_US      test KIND SEED FORK CHILD TOTAL ok|failed
  burst K WALL_US FAILED           verify ok|failed US          bye TESTS FAILED
Reading an entry counts a reference in it, so even reading dirties pages: that is CPython.
"""
import mmap
import os
import random
import struct
import sys
import time

CHUNK, CHECKED, READ, REPLACED = 50_000, 100, 2_000, 20


def value_of(key, version):
    """The text an entry must hold: computed, never remembered."""
    word = (key * 0x9E3779B97F4A7C15 + version * 0xD1B54A32D192ED03) & 0xFFFFFFFFFFFFFFFF
    return f"{key}.{version}:{word:016x}" * 6


def now_us():
    return time.monotonic_ns() / 1000


def resident():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * mmap.PAGESIZE


class Holder:
    def __init__(self):
        self.entries, self.versions = {}, {}
        self.answer = mmap.mmap(-1, mmap.PAGESIZE)      # shared with children
        self.tests = self.failed = 0

    def load(self, target):
        base, last = resident(), -1
        while True:
            first = len(self.entries)
            self.entries.update((k, value_of(k, 0)) for k in range(first, first + CHUNK))
            size = resident() - base
            percent = min(100, size * 100 // target)
            if percent != last:
                last = percent
                print("progress", percent)
            if size >= target:
                return size

    def right(self, key):
        return self.entries[key] == value_of(key, self.versions.get(key, 0))

    def child(self, seed):
        start = now_us()
        keys = random.Random(seed).choices(range(len(self.entries)), k=CHECKED)
        good = all([self.right(k) for k in keys])
        struct.pack_into("d", self.answer, 0, now_us() - start)
        os._exit(0 if good else 1)

    def cycle(self, seed):
        """One fork and reap: (fork us, child us, good)."""
        start = now_us()
        pid = os.fork()
        if pid == 0:
            try:
                self.child(seed)
            finally:
                os._exit(2)
        forked = now_us() - start
        good = os.waitpid(pid, 0)[1] == 0
        self.tests += 1
        self.failed += not good
        return forked, struct.unpack_from("d", self.answer, 0)[0], good

    def work(self, seed):
        """What a living parent does between forks: reads many entries, replaces a few."""
        keys = random.Random(seed ^ 0x5EED).choices(range(len(self.entries)), k=READ)
        touched = sum(len(self.entries[k]) for k in keys)
        for key in keys[:REPLACED]:
            self.versions[key] = self.versions.get(key, 0) + 1
            self.entries[key] = value_of(key, self.versions[key])
        return touched

    def test(self, kind, seed):
        start = now_us()
        if kind == "busy":
            self.work(seed)
        forked, child, good = self.cycle(seed)
        total = now_us() - start
        print(
            f"test {kind} {seed} {forked:.1f} {child:.1f} {total:.1f} {'ok' if good else 'failed'}"
        )

    def burst(self, seed, count):
        start, failed = now_us(), self.failed
        for at in range(count):
            self.work(seed + at)
            self.cycle(seed + at)
        print(f"burst {count} {now_us() - start:.0f} {self.failed - failed}")

    def verify(self):
        start = now_us()
        good = all(self.right(k) for k in range(len(self.entries)))
        self.tests += 1
        self.failed += not good
        print(f"verify {'ok' if good else 'failed'} {now_us() - start:.0f}")


def serve(holder):
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            return
        if words == ["verify"]:
            holder.verify()
        elif len(words) == 2 and words[0] in ("idle", "busy"):
            holder.test(words[0], int(words[1]))
        elif len(words) == 3 and words[0] == "burst":
            holder.burst(int(words[1]), int(words[2]))
        else:
            print(
                "error: expected `idle|busy SEED`, `burst SEED K`, `verify` or `quit`, got:",
                line.strip(),
            )


def main():
    target = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000_000
    sys.stdout.reconfigure(line_buffering=True)
    holder = Holder()
    start = now_us()
    size = holder.load(target)
    print(f"ready {size} {len(holder.entries)} {now_us() - start:.0f}")
    serve(holder)
    print("bye", holder.tests, holder.failed)
    return 1 if holder.failed else 0


if __name__ == "__main__":
    sys.exit(main())
