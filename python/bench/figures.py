"""The figures of the Python package against their bounds; a miss is printed as one.

    python figures.py [--megabytes 1024] [--rounds 500] [--children 1000] [PART]...

Parts: starts, pytest, crowd, memory; all without one. Needs numpy, pandas and pytest beside odfork.
It decides nothing: the exit status is 0 also when bounds are missed.
"""

import argparse
import datetime
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import crowd
import measure
import starts
import tests_overhead


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--children", type=int, default=1000)
    parser.add_argument("parts", nargs="*")
    given = parser.parse_args()
    verdicts = measure.Verdicts()
    parts = {
        "starts": lambda: starts.run(verdicts, given.megabytes, given.rounds),
        "pytest": lambda: tests_overhead.run(verdicts, given.megabytes, given.rounds),
        "crowd": lambda: crowd.run(verdicts, given.megabytes, given.children),
        "memory": lambda: crowd.memory(verdicts, given.megabytes),
    }
    load = os.getloadavg()[0]
    print(f"{datetime.date.today()}, Python {sys.version.split()[0]}, Linux {os.uname().release},")
    print(f"{os.cpu_count()} processors, load {load:.1f} at the start")
    for name in given.parts or parts:
        parts[name]()
    missed = ", ".join(verdicts.missed) or "nothing"
    print(f"missed: {missed}")


if __name__ == "__main__":
    main()
