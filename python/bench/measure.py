"""Samples taken in turn, and what is printed of them: medians with intervals, ratios, misses."""

import random
import statistics
import time


def in_turn(takers, rounds, seconds=None):
    """Calls every taker once a round, in random order; the samples of each by name."""
    samples = {name: [] for name in takers}
    order = random.Random(1)
    until = None if seconds is None else time.monotonic() + seconds
    for _ in range(rounds):
        if until is not None and time.monotonic() > until:
            break
        names = list(takers)
        order.shuffle(names)
        for name in names:
            samples[name].append(takers[name]())
    return samples


def percentile(samples, share):
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def interval(samples, of=statistics.median, again=500):
    """The middle 95 percent of what resampling gives."""
    chance = random.Random(2)
    seen = sorted(of(chance.choices(samples, k=len(samples))) for _ in range(again))
    return seen[int(again * 0.025)], seen[int(again * 0.975)]


def shown(name, samples, unit="ms"):
    """Prints one line: median with interval, 99th percentile, number of samples."""
    low, high = interval(samples)
    print(
        f"  {name}: {statistics.median(samples):.3g} {unit} ({low:.3g} to {high:.3g}), "
        f"p99 {percentile(samples, 0.99):.3g}, {len(samples)} samples",
        flush=True,
    )


class Verdicts:
    """Figures against their bounds. A miss is printed as one."""

    def __init__(self):
        self.missed = []

    def at_most(self, what, value, bound, unit=""):
        self._judge(what, value, f"at most {bound}{unit}", value <= bound, unit)

    def at_least(self, what, value, bound, unit=""):
        self._judge(what, value, f"at least {bound}{unit}", value >= bound, unit)

    def _judge(self, what, value, bound, met, unit):
        if not met:
            self.missed.append(what)
        print(f"{'met   ' if met else 'MISSED'} {what}: {value:.3g}{unit} ({bound})", flush=True)
