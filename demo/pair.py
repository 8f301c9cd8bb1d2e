"""The same program twice, plain and under odfork, asked in turns.

Owns: loading both, interleaving the tests, collecting samples, ending both, judging statistics.
Does not own: what the programs do, or the report's layout.
Rules: without a path of odfork both sides are plain (a control run: the columns should agree).
A test runs on one side and at once, with the same seed, on the other; which side goes first
alternates. Samples become pairs only when both sides answered.
"""
import os
import time
from concurrent.futures import ThreadPoolExecutor

from instances import Broken, Instance


class Checks:
    """Counts of passed and failed checks; failures are printed as they happen."""

    def __init__(self):
        self.passed = self.failed = 0

    def add(self, good, words):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"  FAILED: {words}", flush=True)


class Sample:
    """One test on one side, in milliseconds."""

    def __init__(self, words):
        self.fork, self.test, self.total = (float(w) / 1000 for w in words[3:6])


class Pair:
    def __init__(self, name, command, odfork, folder, checks):
        self.name, self.checks = name, checks
        self.ready, self.samples, self.warm_up, self.stats = {}, {}, {}, None
        self._scheduled, self.waiting = {}, {}  # at the start of the rounds; since then
        self.sides = {}
        self._command, self._odfork = command, odfork
        self._stats_file = os.path.join(folder, f"{name}.json")

    def load(self):
        """Loads both at the same time. One after the other would favour one side: with plain fork on both
        sides, the one loaded first took 1.2-1.5 times as long to fork as the other, in either order of
        sides (six runs at 0.5 GB, 2 CPUs, Linux 6.18; why is not known, page placement is a guess)."""
        for label in ("stock", "odfork"):
            under = self._odfork if label == "odfork" else None
            self.sides[label] = Instance(f"{self.name}, {label}", self._command, under, self._stats_file)
        with ThreadPoolExecutor(max_workers=2) as pool:
            waiting = {label: pool.submit(self.sides[label].wait_ready, self._progress(label))
                       for label in self.sides}
            for label, loaded in waiting.items():
                self.ready[label] = self._loaded(loaded)
        for label in self.sides:
            self.verify(label)

    def _loaded(self, future):
        try:
            return future.result()
        except BaseException:       # also Ctrl-C: end both, so that the pool's threads see end of file
            self.abandon()
            raise

    def _progress(self, label):
        start, shown = time.monotonic(), [-1]

        def show(percent):
            if percent // 20 > shown[0]:
                shown[0] = percent // 20
                print(f"  {label:<6} loading {percent:3d} %  {time.monotonic() - start:5.1f} s", flush=True)
        return show

    def verify(self, label):
        words = self.sides[label].ask("verify")
        self.checks.add(words[:2] == ["verify", "ok"], f"{self.name}, {label}: whole content as computed")

    def test(self, label, kind, seed):
        words = self.sides[label].ask(f"{kind} {seed}")
        if words[0] != "test" or len(words) < 7:
            raise Broken(f"{self.name}, {label}: answered {' '.join(words)!r} to {kind}")
        self.checks.add(words[6] == "ok", f"{self.name}, {label}: {' '.join(words)}")
        return Sample(words)

    def first_forks(self, kinds):
        """The warm-up: under odfork its first fork holds the freeze. Kept apart from the samples."""
        for label in ("stock", "odfork"):
            self.warm_up[label] = [self.test(label, kind, 0) for kind in kinds]

    def rounds(self, kinds, count, seconds):
        """Up to `count` rounds of every kind, no longer than `seconds`."""
        self._scheduled = {label: side.scheduled() for label, side in self.sides.items()}
        start = said = time.monotonic()
        for number in range(1, count + 1):
            for kind in kinds:
                self._both(kind, number)
            self._note_waiting()
            now = time.monotonic()
            if now - said > 5 or number == count:
                said = now
                print(f"  round {number} of {count}  {now - start:5.1f} s", flush=True)
            if now - start > seconds:
                print(f"  time is up ({seconds} s): {number} of {count} rounds measured", flush=True)
                return

    def _both(self, kind, seed):
        order = ("stock", "odfork") if seed % 2 else ("odfork", "stock")
        got = {label: self.test(label, kind, seed) for label in order}
        self.samples.setdefault(kind, []).append((got["stock"], got["odfork"]))

    def _note_waiting(self):
        """How long each parent ran, and how long it was kept waiting for a CPU, since the rounds began."""
        for label, side in self.sides.items():
            before, after = self._scheduled[label], side.scheduled()
            if before and after:
                self.waiting[label] = after[0] - before[0], after[1] - before[1]

    def freeze_ms(self):
        """What the first fork under odfork cost more than a later one, or None before there is one."""
        later = [odfork.fork for pairs in self.samples.values() for _, odfork in pairs]
        if not later or "odfork" not in self.warm_up:
            return None
        return self.warm_up["odfork"][0].fork - sorted(later)[len(later) // 2]

    def finish(self):
        """Parents unchanged? Then ends both, one after the other, so memory is given back early."""
        for label in ("stock", "odfork"):
            print(f"  {label:<6} comparing the parent's whole content with the model", flush=True)
            self.verify(label)
            tests, failed, status = self.sides[label].end()
            self.checks.add(failed == 0 and status == 0,
                            f"{self.name}, {label}: {failed} of {tests} failed, exit status {status}")
        self.judge_statistics()

    def judge_statistics(self):
        if not self._odfork:
            return
        self.stats = self.sides["odfork"].statistics()
        self.checks.add(self.stats is not None, f"{self.name}: odfork wrote statistics (schema 1) at exit")
        if self.stats:
            frozen = self.stats.get("freeze", {}).get("count", 0) >= 1
            self.checks.add(frozen, f"{self.name}: odfork froze the memory; engine {self.stats.get('engine')!r}, "
                                    f"reason: {self.stats.get('reason')!r}, fallbacks: {self.stats.get('fallbacks')}")

    def abandon(self):
        for side in self.sides.values():
            side.abandon()
