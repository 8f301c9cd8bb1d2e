"""The demo: SQLite unit tests and a forking python3, each under stock fork and under odfork.

Owns: what is measured in which order, and the report. Called by run.sh with the path of the
odfork program and of the compiled sqlite_units; `--help` lists the sizes that can be changed.
Exit status: 0 when every check passed, 1 when one failed or a program broke, 2 for a wrong setup,
130 after Ctrl-C (what was measured so far is printed first).
"""
import argparse
import math
import os
import signal
import sys
import tempfile
import time

import figures
import memory
from figures import Paired
from instances import Broken
from pair import Checks, Pair

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"
UNIT_KINDS = ("select", "delete", "update")             # the three the published figures are about
PUBLISHED_INITIALISE = "24,189"
PUBLISHED = {"fork": "13.15 -> 0.12  (110x)", "test": "0.18 -> 0.21", "fork + test": "13.33 -> 0.33  (40x)"}
METRICS = (("fork", lambda s: s.fork), ("test", lambda s: s.test), ("fork + test", lambda s: s.fork + s.test),
           ("until reaped", lambda s: s.total))


def metric(pairs, get):
    return Paired([(get(s), get(o)) for s, o in pairs])


def print_group(group, pairs, published=None):
    for what, get in METRICS:
        beside = (published or {}).get(what, "")
        print(figures.row(group, what, metric(pairs, get), beside))
        group = ""


def print_payback(pair, pairs):
    freeze = pair.freeze_ms()
    saved = metric(pairs, METRICS[3][1])
    if freeze is None or saved.stock <= saved.odfork:
        print("the freeze is not paid back: a test costs no less under odfork in this run")
        return
    forks = max(1, math.ceil(max(freeze, 0) / (saved.stock - saved.odfork)))
    each = figures.number(saved.stock - saved.odfork)
    print(f"the freeze is paid back after {forks} fork{'' if forks == 1 else 's'} "
          f"({figures.number(max(freeze, 0))} ms, of which each test gives back {each} ms)")


def print_waiting(pair):
    """Whether other work on this machine distorts the times above: it stretches long operations more than
    short ones, because a short one ends before its slice does. CPU time of the parents is free of that."""
    if len(pair.waiting) < 2:
        return
    tests = sum(len(pairs) for pairs in pair.samples.values())
    (ran, waited), (ran_odfork, waited_odfork) = pair.waiting["stock"], pair.waiting["odfork"]
    print(f"CPU time of the parent per test: stock {figures.number(ran / tests)} ms (and "
          f"{figures.number(waited / tests)} ms waiting for a CPU), odfork {figures.number(ran_odfork / tests)} ms (and "
          f"{figures.number(waited_odfork / tests)} ms), {figures.times(figures.quotient(ran, ran_odfork))}")
    if waited > 0.2 * ran:
        print("WARNING: other work kept the stock side waiting; this stretches long forks more than short ones, so")
        print("the ratios above flatter odfork. Believe the CPU-time ratio, or repeat on a quiet machine.")


def print_statistics(stats):
    if not stats:
        print("odfork's own statistics: none in this run")
        return
    freeze, fold = stats.get("freeze", {}), stats.get("fold", {})
    print(f"odfork's own statistics: engine {stats.get('engine')} ({stats.get('reason')}); "
          f"{freeze.get('count')} freezes, {freeze.get('us', 0) / 1000:,.1f} ms, {freeze.get('bytes', 0) >> 20:,} MB; "
          f"folds: {fold.get('in_place')} in place, {fold.get('rebuilt')} rebuilt, {fold.get('us', 0) / 1000:,.1f} ms "
          f"in all")
    for fallback in stats.get("fallbacks") or []:
        print(f"  left plain: {fallback.get('reason')} x {fallback.get('count')} ({fallback.get('detail')})")


class SqliteUnits:
    """Unit tests over one big in-memory database, each in its own child."""

    def __init__(self, options, folder, checks):
        self.options = options
        self.bytes, self.short = memory.fitting(options.bytes, 16 * memory.MIB)
        self.pair = Pair("sqlite", [options.units, str(self.bytes)], options.odfork, folder, checks)

    def run(self):
        print(f"\nPart 1: unit tests over an in-memory SQLite database of {self.bytes / (1 << 30):.2f} GB")
        if self.short:
            print(f"  {self.short}")
        self.pair.load()
        self.pair.first_forks(UNIT_KINDS + ("key",))
        self.pair.rounds(UNIT_KINDS + ("key",), self.options.rounds, self.options.seconds)
        self.pair.finish()

    def report(self):
        pair, every = self.pair, [p for kind in UNIT_KINDS for p in self.pair.samples.get(kind, [])]
        if not every:
            print("\nSQLite unit tests: nothing measured yet")
            return
        pages, rows = pair.ready["stock"][:2]
        print(f"\nSQLite unit tests: {pages / (1 << 30):.2f} GB of database pages, {int(rows):,} rows, "
              f"{len(every)} pairs of tests, medians [95 % interval]")
        print(figures.heading("published: fork -> on-demand-fork"))
        print(figures.plain_row("once", "initialise", pair.ready["stock"][2] / 1000,
                                pair.ready["odfork"][2] / 1000, PUBLISHED_INITIALISE))
        if not self.options.control:
            print(figures.plain_row("", "freeze, once", None, pair.freeze_ms(), "(none: a changed kernel)"))
        first = {label: samples[0].fork for label, samples in pair.warm_up.items()}
        print(figures.plain_row("", "first fork", first["stock"], first["odfork"]))
        for kind in UNIT_KINDS:
            if pair.samples.get(kind):
                print_group(kind, pair.samples[kind])
        print_group("all three", every, PUBLISHED)
        if pair.samples.get("key"):
            print_group("key", pair.samples["key"])
        self.report_means(every)
        print_waiting(pair)
        if not self.options.control:
            print_payback(pair, every)
        print_statistics(pair.stats)

    @staticmethod
    def report_means(pairs):
        shown = []
        for what, get in METRICS[:3]:
            stock, odfork = (figures.mean([get(p[side]) for p in pairs]) for side in (0, 1))
            shown.append(f"{what} {figures.number(stock)} -> {figures.number(odfork)}")
        print("the published figures are means; ours, all three kinds: " + ", ".join(shown))


class PythonDict:
    """An unmodified python3 that holds a dict and forks again and again."""

    def __init__(self, options, folder, checks):
        self.options, self.bursts = options, []
        self.bytes, self.short = memory.fitting(options.dict_bytes, 8 * memory.MIB)
        command = [PYTHON, "-B", os.path.join(HERE, "python_dict.py"), str(self.bytes)]
        self.pair = Pair("python", command, options.odfork, folder, checks)

    def run(self):
        print(f"\nPart 2: {PYTHON}, unmodified, holding a dict of {self.bytes / 1e6:.0f} MB")
        if self.short:
            print(f"  {self.short}")
        self.pair.load()
        self.burst("from the first fork on", 100)
        self.pair.first_forks(("idle", "busy"))
        self.pair.rounds(("idle", "busy"), self.options.rounds, self.options.seconds)
        self.burst("later", 200)
        self.pair.finish()

    def burst(self, when, seed):
        """Wall time of K cycles with nothing left out: work, freeze, folds, forks, children, reaping."""
        wall, count = {}, self.options.burst
        for label in ("stock", "odfork") if len(self.bursts) % 2 else ("odfork", "stock"):
            words = self.pair.sides[label].ask(f"burst {seed} {count}")
            if words[0] != "burst":
                raise Broken(f"python, {label}: answered {' '.join(words)!r} to burst")
            self.pair.checks.add(words[3] == "0", f"python, {label}: {words[3]} of {count} children failed")
            wall[label] = float(words[2]) / 1000
        print(f"  {count} cycles {when}: stock {wall['stock']:,.0f} ms, odfork {wall['odfork']:,.0f} ms", flush=True)
        self.bursts.append((when, wall))

    def report(self):
        pair = self.pair
        if not pair.samples and not self.bursts:
            print("\nPython: nothing measured yet")
            return
        size, entries = pair.ready["stock"][:2]
        print(f"\nPython: a dict of {int(entries):,} entries, {size / 1e6:.0f} MB, medians [95 % interval]")
        print(figures.heading(""))
        print(figures.plain_row("once", "initialise", pair.ready["stock"][2] / 1000, pair.ready["odfork"][2] / 1000))
        for kind in ("idle", "busy"):
            if pair.samples.get(kind):
                print_group(kind, pair.samples[kind])
        for when, wall in self.bursts:
            print(f"{self.options.burst} busy cycles {when}, wall time of everything: stock {wall['stock']:,.0f} ms, "
                  f"odfork {wall['odfork']:,.0f} ms, {figures.times(figures.quotient(wall['stock'], wall['odfork']))}")
        print("idle: the parent does nothing between forks. busy: it reads 2,000 entries and replaces 20 first;"
              "\nCPython counts references in the objects it reads, so reading dirties pages, and under"
              "\n--freeze eager every fork first folds them: that time is inside the fork column.")
        print_waiting(pair)
        print_statistics(pair.stats)


def options_of(arguments):
    parser = argparse.ArgumentParser(description="SQLite unit tests and a forking python3, stock fork and odfork.")
    parser.add_argument("--odfork", required=True, help="path of the odfork program")
    parser.add_argument("--units", required=True, help="path of the compiled sqlite_units")
    parser.add_argument("--bytes", type=int, default=1 << 30, help="bytes of database pages (default 1 GiB)")
    parser.add_argument("--dict-bytes", type=int, default=500_000_000, help="size of the dict (default 500 MB)")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of every kind of test (default 40)")
    parser.add_argument("--seconds", type=float, default=50, help="longest time for the rounds of one part")
    parser.add_argument("--control", action="store_true", help="stock fork on both sides: shows the noise")
    parser.add_argument("--burst", type=int, default=60, help="python3 cycles in one burst (default 60)")
    options = parser.parse_args(arguments)
    if options.control:
        options.odfork = None
    return options


def measure(options, folder, checks, parts):
    """Runs one part after the other; each frees its memory before the next begins."""
    for make in (SqliteUnits, PythonDict):
        part = make(options, folder, checks)
        parts.append(part)
        try:
            part.run()
        finally:
            part.pair.abandon()


def interrupt(_signal, _frame):
    raise KeyboardInterrupt


def main():
    options = options_of(sys.argv[1:])
    signal.signal(signal.SIGTERM, interrupt)
    checks, parts, status, start = Checks(), [], 0, time.monotonic()
    print(f"odfork demo: {memory.machine()}")
    if options.control:
        print("control run: BOTH columns are stock fork, so every true ratio is 1")
    with tempfile.TemporaryDirectory(prefix="odfork-demo-") as folder:
        try:
            measure(options, folder, checks, parts)
        except KeyboardInterrupt:
            print("\ninterrupted: this is what was measured so far", flush=True)
            status = 130
        except Broken as error:
            checks.add(False, str(error))
    for part in parts:
        part.report()
    if options.control:
        print("\ncontrol run: BOTH columns above are stock fork; a ratio that is not 1 is noise of this machine")
    print("\nTimes of one shared virtual machine mean little by themselves; the two columns of one run,"
          "\ntaken in turns, can be compared with each other, and ratios with published ratios.")
    print(f"checks: {checks.passed} passed, {checks.failed} failed; {time.monotonic() - start:.0f} s")
    return status or (1 if checks.failed else 0)


if __name__ == "__main__":
    sys.exit(main())
