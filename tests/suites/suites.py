"""Runs every unit of every suite stock and in each mode, and compares the outcomes of its tests.

  suites.py RELEASE [SUITE|SUITE/UNIT]...

A suite is a module with NAME, missing() (a reason to skip, or None), UNITS, and run(unit, stage),
which gives the outcome of each test by name. A test that differs runs again on both sides, three
times at most: it counts as different when odfork never showed what stock showed. One that differs
only sometimes is named.
"""

import collections
import os
import signal
import sys
import time

import cpython
import postgres
import redis
import stress
from stage import MODES, Stage

SUITES = [cpython, stress, redis, postgres]
AGAIN = 3


def say(text):
    print(f"suites: {text}", flush=True)


class Judge:
    def __init__(self, release):
        self.release = release
        self.passed = self.failed = self.skipped = 0

    def run(self, suite, unit, mode):
        with Stage(self.release, mode) as stage:
            return suite.run(unit, stage)

    def compare(self, suite, unit, modes):
        began = time.monotonic()
        stock = self.run(suite, unit, "stock")
        if not stock.keys() - {"exit status"}:
            say(f"FAILED {suite.NAME}/{unit}: no test ran, not even stock: {stock}")
            self.failed += 1
            return
        shown = {name: {outcome} for name, outcome in stock.items()}
        for mode in modes:
            got = self.run(suite, unit, mode)
            differ = {name for name in stock.keys() | got.keys()
                      if got.get(name) not in shown.get(name, {None})}
            real = self.again(suite, unit, mode, shown, got, differ) if differ else set()
            for name in sorted(real):
                say(f"DIFFERENT {suite.NAME}/{unit} {mode}: {name}: "
                    f"stock {stock.get(name)}, odfork {got.get(name)}")
            self.failed += len(real)
            self.passed += len(stock.keys() | got.keys()) - len(real)
        tally = collections.Counter(stock.values())
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.items()))
        say(f"{suite.NAME}/{unit}: {counts} ({time.monotonic() - began:.0f} s)")

    def again(self, suite, unit, mode, shown, got, differ):
        """Which of these tests show under odfork only what stock never shows."""
        seen = {name: {got.get(name)} for name in differ}
        for _ in range(AGAIN):
            stock, other = self.run(suite, unit, "stock"), self.run(suite, unit, mode)
            for name, outcome in stock.items():
                shown.setdefault(name, set()).add(outcome)
            for name in differ:
                seen[name].add(other.get(name))
            if all(seen[name] & shown.get(name, {None}) for name in differ):
                break
        real = {name for name in differ if not seen[name] & shown.get(name, {None})}
        for name in sorted(differ - real):
            say(f"unsteady {suite.NAME}/{unit} {mode}: {name}: "
                f"stock {shown.get(name)}, odfork {seen[name]}")
        return real


def chosen(suite, wishes):
    """The units that are asked for; all without a wish."""
    if not wishes or suite.NAME in wishes:
        return suite.UNITS
    return [unit for unit in suite.UNITS if f"{suite.NAME}/{unit}" in wishes]


def main():
    judge = Judge(os.path.abspath(sys.argv[1]))
    modes = os.environ.get("MODES", ",".join(MODES)).split(",")
    for suite in SUITES:
        units = chosen(suite, sys.argv[2:])
        reason = suite.missing() if units else None
        if reason:
            say(f"SKIPPED {suite.NAME}: {reason}")
            judge.skipped += 1
            continue
        for unit in units:
            judge.compare(suite, unit, modes)
    print(f"{judge.passed} passed, {judge.failed} failed, {judge.skipped} skipped")
    return 1 if judge.failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
