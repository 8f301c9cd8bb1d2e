"""Copy-on-write by reference counts: the memory of a parent and its children over time.

    python refcounts.py [--megabytes 200] [--children 4] [--kinds lists,nones,array] [PYTHON]...

Each Python, with the library and by stock fork, with gc.freeze() in the parent and without: the
sum of all processes' PSS after the fork, after a garbage collection in each child, and after each
has read a tenth and all of the parent's objects. What is held: short lists, as many None as fit, or
one array. Give odfork to other interpreters by PYTHONPATH and ODFORK_LIB.
"""

import argparse
import array
import gc
import json
import os
import subprocess
import sys

STEPS = ("forked", "collected", "read a tenth", "read all")
KINDS = ("lists", "nones", "array")


def make(kind, megabytes):
    size = megabytes << 20
    if kind == "lists":
        return [[number * 1.5, str(number)] for number in range(size // 176)]
    if kind == "nones":
        return [None] * (size // 8)
    return array.array("d", bytes(size))


def read(held, share):
    """Looks at the first part of the objects; at what is in lists as well."""
    count = int(len(held) * share)
    if isinstance(held[0], list):
        for number in range(count):
            held[number][1]
    else:
        for number in range(count):
            held[number]


def child(held, orders, answers):
    """Does what each byte says and answers with it, until the pipe ends."""
    gc.enable()
    while True:
        order = os.read(orders, 1)
        if not order:
            os._exit(0)
        if order == b"1":
            gc.collect()
        elif order == b"2":
            read(held, 0.1)
        elif order == b"3":
            read(held, 1)
        os.write(answers, order)


def sum_of_pss(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            total += next(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
    return total / 1024


def parent(kind, megabytes, children, freeze, library):
    """In an interpreter of its own: MB in all after each step, as JSON."""
    import odfork

    held = make(kind, megabytes)
    if freeze:
        gc.collect()
        gc.freeze()
    if library and not odfork.freeze():
        sys.exit(odfork.reason())
    alone = sum_of_pss([os.getpid()])
    answers, theirs = os.pipe()
    orders, pids = [], []
    for _ in range(children):
        taken, given = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(given)
            for other in orders:
                os.close(other)
            child(held, taken, theirs)
        os.close(taken)
        orders.append(given)
        pids.append(pid)
    seen = [alone]
    for number in range(len(STEPS)):
        for order in orders:
            os.write(order, b"%d" % number)
        left = children
        while left:
            left -= len(os.read(answers, left))
        seen.append(sum_of_pss([os.getpid(), *pids]))
    for order in orders:
        os.close(order)
    for pid in pids:
        os.waitpid(pid, 0)
    print(json.dumps(seen))


def measured(python, library, arguments):
    start = [python, "-m", "odfork", "--freeze", "auto"] if library else [python]
    command = [*start, os.path.abspath(__file__), "--parent", *map(str, arguments)]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(ran.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--children", type=int, default=4)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("pythons", nargs="*", default=[sys.executable])
    given = parser.parse_args()
    print(f"MB of a parent and {given.children} children together")
    print("| Python | held | fork | gc.freeze | alone | " + " | ".join(STEPS) + " |")
    print("|" + " --- |" * (5 + len(STEPS)))
    for python in given.pythons:
        version = "import sys; print('%d.%d' % sys.version_info[:2])"
        name = subprocess.run([python, "-c", version], stdout=subprocess.PIPE, text=True).stdout
        for kind in given.kinds.split(","):
            for library in (False, True):
                for freeze in (False, True):
                    arguments = (kind, given.megabytes, given.children, int(freeze), int(library))
                    seen = measured(python, library, arguments)
                    cells = [name.strip(), kind, "odfork" if library else "stock"]
                    cells += ["yes" if freeze else "no", *(f"{value:.0f}" for value in seen)]
                    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--parent"]:
        kind, *numbers = sys.argv[2:]
        parent(kind, *map(int, numbers))
    else:
        main()
