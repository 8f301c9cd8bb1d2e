"""How long a child takes from its request to its first instruction of user code.

Compared in one run: a child of a template, a fork of an empty interpreter, and
`python -c "import numpy, pandas"`.
"""

import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

import measure
import work

import odfork

EMPTY = """
import os, sys, time
read, write = 0, 1
while os.read(read, 1):
    begin = time.monotonic_ns()
    pid = os.fork()
    if pid == 0:
        os.write(write, (time.monotonic_ns() - begin).to_bytes(8, "little"))
        os._exit(0)
    os.waitpid(pid, 0)
"""
NOW = "import os, time; os.write(1, time.monotonic_ns().to_bytes(8, 'little'))"


class Empty:
    """An interpreter that has imported nothing and forks when it is told to."""

    def __init__(self):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", EMPTY], stdin=pipe, stdout=pipe, bufsize=0
        )

    def sample(self):
        self.process.stdin.write(b"f")
        return int.from_bytes(self.process.stdout.read(8), "little") / 1e6

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def of_template(zygote):
    """Milliseconds until a child of the template runs the function it was asked for."""
    read, write = os.pipe()
    try:
        begin = time.monotonic_ns()
        child = zygote.start(work.write_time, (1,), stdout=write)
        first = int.from_bytes(os.read(read, 8), "little")
        child.wait()
    finally:
        os.close(read)
        os.close(write)
    return (first - begin) / 1e6


def of_command(imports):
    begin = time.monotonic_ns()
    command = [sys.executable, "-c", f"import {imports}; {NOW}"]
    first = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return (int.from_bytes(first, "little") - begin) / 1e6


def run(verdicts, megabytes, rounds):
    print(f"start of a child: a template of {megabytes} MB, one with numpy and pandas")
    with ExitStack() as stack:
        big = stack.enter_context(
            odfork.Zygote(imports=["work"], setup="work:hold", setup_args=(megabytes,))
        )
        imported = stack.enter_context(odfork.Zygote(imports=["work", "numpy", "pandas"]))
        print(f"  frozen: {big.frozen_bytes >> 20} MB, {imported.frozen_bytes >> 20} MB")
        empty = stack.enter_context(Empty())
        takers = {
            "empty interpreter": empty.sample,
            "template": lambda: of_template(big),
            "template with pandas": lambda: of_template(imported),
        }
        measure.in_turn(takers, 20)  # until caches are warm
        seen = measure.in_turn(takers, rounds)
        few = max(5, rounds // 50)
        slow = {
            "python -c import": lambda: of_command("numpy, pandas"),
            "beside it": lambda: of_template(imported),
        }
        seen.update(measure.in_turn(slow, few))
    for name, samples in seen.items():
        measure.shown(name, samples)
    judge(verdicts, seen)


def judge(verdicts, seen):
    base, ours = seen["empty interpreter"], seen["template"]
    median = statistics.median(ours) / statistics.median(base)
    verdicts.at_most("child of a template to a fork of an empty interpreter, median", median, 3)
    tail = measure.percentile(ours, 0.99) / measure.percentile(base, 0.99)
    verdicts.at_most("the same, 99th percentile", tail, 8)
    slow, beside = seen["python -c import"], seen["beside it"]
    times = statistics.median(slow) / statistics.median(beside)
    verdicts.at_least("python -c import numpy, pandas to a child", times, 200)
