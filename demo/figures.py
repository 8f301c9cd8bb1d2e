"""Numbers of the demo: medians, bootstrap intervals, ratios, and how they are printed.

Owns: arithmetic and the layout of table rows. Pure: no clock, no processes, no files.
Rule: samples are pairs (stock, odfork) of the same test taken next to each other in time, and they
are resampled as pairs, so what slows the machine for a moment slows both sides of a pair.
"""
import random

RESAMPLES = 1000


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def mean(values):
    return sum(values) / len(values)


def interval(values):
    """The middle 95 % of values."""
    ordered = sorted(values)
    cut = int(len(ordered) * 0.025)
    return ordered[cut], ordered[-1 - cut]


class Paired:
    """Medians of both sides and of their ratio, each with a 95 % bootstrap interval."""

    def __init__(self, pairs, seed=1):
        self.count = len(pairs)
        self.stock = median([s for s, _ in pairs])
        self.odfork = median([o for _, o in pairs])
        self.ratio = quotient(self.stock, self.odfork)
        source = random.Random(seed)
        stock, odfork, ratio = [], [], []
        for _ in range(RESAMPLES):
            drawn = source.choices(pairs, k=len(pairs))
            stock.append(median([s for s, _ in drawn]))
            odfork.append(median([o for _, o in drawn]))
            ratio.append(quotient(stock[-1], odfork[-1]))
        self.stock_range, self.odfork_range = interval(stock), interval(odfork)
        self.ratio_range = interval(ratio)


def quotient(a, b):
    return a / b if b > 0 else float("inf")


def number(value):
    """A number with three significant digits or so."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def spread(value, bounds):
    return f"{number(value)} [{number(bounds[0])}, {number(bounds[1])}]"


def times(value):
    return f"{number(value)}x"


COLUMNS = "{:<9} {:<13} {:>24} {:>24} {:>27}   {}"


def heading(last):
    return COLUMNS.format("", "ms", "stock fork", "odfork", "stock / odfork", last).rstrip()


def row(group, what, paired, beside=""):
    ratio = f"{times(paired.ratio)} [{number(paired.ratio_range[0])}, {number(paired.ratio_range[1])}]"
    return COLUMNS.format(group, what, spread(paired.stock, paired.stock_range),
                          spread(paired.odfork, paired.odfork_range), ratio, beside).rstrip()


def plain_row(group, what, stock, odfork, beside=""):
    """A row of single measurements, in milliseconds; None prints as a dash."""
    shown = ["-" if v is None else number(v) for v in (stock, odfork)]
    return COLUMNS.format(group, what, shown[0], shown[1], "", beside).rstrip()
