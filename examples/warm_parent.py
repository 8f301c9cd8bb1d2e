"""A parent of 1 GB that forks 200 children: what a fork server or a test runner does.

    python3 examples/warm_parent.py
    target/release/odfork run --stats text -- python3 examples/warm_parent.py

Prints the time of the call of fork in the parent: of the first, and the median once memory is
frozen.
"""
import os
import statistics
import time

index = bytearray(os.urandom(1 << 20)) * 1024


def fork_once():
    begin = time.perf_counter()
    child = os.fork()
    if child == 0:
        os._exit(0 if index[-1] == index[(1 << 20) - 1] else 1)
    took = time.perf_counter() - begin
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise SystemExit("a child read wrong memory")
    return took * 1e6


times = [fork_once() for _ in range(200)]
print(f"fork 1:           {times[0]:7.0f} us")
print(f"forks 101 to 200: {statistics.median(times[100:]):7.0f} us")
