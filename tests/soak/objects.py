"""A program of the soak: an interpreter's heap. Objects with sums, children that check and change
them, threads, garbage collection.

  objects.py SEED SECONDS THREADS     exit status 1 and "WRONG ..." on stderr: content differed

Descriptor 1 gets a byte for every step: who reads it sees whether the program is stuck.
"""

import gc
import os
import random
import signal
import sys
import threading
import time
import zlib

SEED, SECONDS, THREADS = (int(word) for word in sys.argv[1:4])
CHILDREN = 3
chance = random.Random(SEED)
table = {}


def wrong(text):
    os.write(2, f"WRONG seed {SEED} pid {os.getpid()}: {text}\n".encode())
    os._exit(1)


def make(key):
    size = chance.choice((10, 300, 5000, 70000))
    content = bytearray(chance.randbytes(size))
    table[key] = (zlib.crc32(content), content, [key] * (size // 50), {"key": key})


def verify(when):
    for key, (total, content, keys, named) in list(table.items()):
        if zlib.crc32(content) != total or keys.count(key) != len(keys) or named["key"] != key:
            wrong(f"{when}: object {key} of {len(content)} bytes")


def change(steps):
    for _ in range(steps):
        key = chance.randrange(1500)
        what = chance.randrange(4)
        if what == 0:
            table.pop(key, None)
        elif what == 1 and key in table:
            _, content, keys, named = table[key]
            content += chance.randbytes(chance.randrange(9000))
            table[key] = (zlib.crc32(content), content, keys, named)
        else:
            make(key)
    os.write(1, b".")


def beside():
    """Objects of a thread's own come and go while others fork."""
    own = []
    while True:
        own = [bytes([n % 251]) * n for n in range(1, 20000, 97)] + own[:100]
        if any(text != text[:1] * len(text) for text in own):
            wrong("a thread's own object")
        time.sleep(0.002)


def child(seed):
    chance.seed(seed)
    verify("at the fork")
    change(chance.randrange(150))
    gc.collect()
    verify("a child's end")
    os._exit(0)


def collect(pid):
    if chance.randrange(4) == 0:
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if status not in (0, signal.SIGKILL):
        wrong(f"child {pid} ended with status {status:#x}")


def main():
    signal.signal(signal.SIGUSR1, lambda *_: None)
    for key in range(1500):
        make(key)
    for _ in range(THREADS):
        threading.Thread(target=beside, daemon=True).start()
    children = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        change(chance.randrange(200))
        if len(children) == CHILDREN:
            collect(children.pop(chance.randrange(CHILDREN)))
        seed = chance.randrange(1 << 60)
        try:
            pid = os.fork()
        except OSError:
            continue
        if pid == 0:
            child(seed)
        children.append(pid)
        verify("the parent")
    for pid in children:
        collect(pid)
    # The interpreter's end puts default handlers back: a signal would kill it then.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os._exit(0) if THREADS else sys.exit(0)


try:
    main()
except (MemoryError, BrokenPipeError):
    os._exit(0)
