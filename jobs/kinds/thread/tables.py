"""Compiles distributions into integer tables when a job is planned. Kernels use only these tables.

The module uses exact arithmetic (`fractions`, `decimal`), so results do not depend on a machine's math library.
`tables_pareto.py` uses floats only if their error cannot change the rounded integer.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

from jobs.kinds.thread import parameters as laws
from jobs.kinds.thread import tables_pareto

#: Maximum number of children of a thread; if a larger number is drawn, the thread has this many.
MAX_CHILDREN = 64
#: Integer that represents a probability of 1; thresholds are compared with 32 random bits.
ONE = 2**32
#: Mean number of children below which the probability of a child rounds to 0.
_CHILDLESS = Fraction(1, 4 * ONE)
#: Number of bits of a random number; the number 0 results in the longest work, 64 ln 2 times the mean.
_WORD_BITS = 64
#: Maximum mean in a table, so that its product with 64 ln 2 in units of 2^-24 stays below 2^63.
_MOST_MEAN = 12 * 10**9


@lru_cache
def logarithms() -> tuple[int, ...]:
    """Return -ln((1024+i)/2048) for i in 0..1024, in units of 2^-24, rounded to nearest."""
    with localcontext(prec=40):
        scale = Decimal(2**24)
        return tuple(int((-(Decimal(1024 + i) / 2048).ln() * scale).to_integral_value()) for i in range(1025))


def nanoseconds(microseconds: float) -> int:
    """Convert microseconds, as written in decimal, to the nearest nanosecond, rounding half to even."""
    return round(Fraction(repr(microseconds)) * 1000)


def work(law: laws.Work) -> dict[str, Any]:
    """Compile the distribution of a thread's work into integers; see "Random numbers" in README.md.

    Return {"law", "numbers"}, from which work in ns is drawn.
    """
    match law:
        case laws.FixedWork():
            numbers = [nanoseconds(law.mean_us)]
        case laws.UniformWork():
            low, high = nanoseconds(law.min_us), nanoseconds(law.max_us)
            numbers = [low, high - low + 1]
        case laws.ExponentialWork():
            numbers = [nanoseconds(law.mean_us)]
        case laws.HyperexponentialWork():
            numbers = _branches(law.mean_us, law.scv)
        case laws.ParetoWork():
            numbers = list(tables_pareto.points(law.mean_us, law.alpha, law.max_ratio))
        case laws.EmpiricalWork():
            numbers = [nanoseconds(quantile) for quantile in law.quantiles_us]
    return {"law": law.distribution, "numbers": numbers}


def arrival(law: laws.Arrival) -> dict[str, Any] | None:
    """Compile the distribution of the time between two arriving roots into integers; None for a batch.

    Return {"mean", "bits", "warmup"}: the mean time between roots in units of 2^-bits ns, its bits, and the number of
    warm-up roots.
    """
    if isinstance(law, laws.BatchArrival):
        return None
    mean = 10**6 / Fraction(repr(law.rate_per_ms))
    bits = max(bits for bits in range(21) if bits == 0 or round(mean * 2**bits) <= _MOST_MEAN)
    return {"mean": round(mean * 2**bits), "bits": bits, "warmup": law.warmup_roots}


def mean_arrival(table: dict[str, Any]) -> Fraction:
    """Return the mean time in ns between the arrivals of two root threads."""
    return Fraction(table["mean"], 2 ** table["bits"])


def last_arrival(table: dict[str, Any], roots: int) -> int:
    """Return the time in ns after which no root thread can arrive."""
    return int(roots * (table["mean"] * _WORD_BITS * logarithms()[0] >> 24) >> table["bits"]) + 1


def _branches(mean_us: float, scv: float) -> list[int]:
    """Return the threshold of the frequent branch and the means of both branches of a hyperexponential law.

    The branches are exponential and have balanced means.
    """
    with localcontext(prec=40):
        ratio = Decimal(repr(scv))
        frequent = (1 + ((ratio - 1) / (ratio + 1)).sqrt()) / 2
        mean = Decimal(repr(mean_us)) * 1000
        means = (mean / (2 * frequent), mean / (2 * (1 - frequent)))
        return [round(Fraction(frequent) * ONE), *(round(Fraction(each)) for each in means)]


def mean_work(table: dict[str, Any]) -> Fraction:
    """Return the expected work of a thread in ns, ignoring the minimum of 1 ns."""
    numbers = table["numbers"]
    match table["law"]:
        case "uniform":
            return Fraction(2 * numbers[0] + numbers[1] - 1, 2)
        case "hyperexponential":
            frequent = Fraction(numbers[0], ONE)
            return frequent * numbers[1] + (1 - frequent) * numbers[2]
        case "empirical":
            return Fraction(sum(numbers) * 2 - numbers[0] - numbers[-1], 2 * (len(numbers) - 1))
        case "pareto":
            shares, common = tables_pareto.shares()
            return Fraction(sum(map(operator.mul, shares, numbers)), common)
        case _:
            return Fraction(numbers[0])


def square_work(table: dict[str, Any]) -> Fraction | None:
    """Return the expected square of a thread's work in ns^2, or None if there is no closed form."""
    numbers = table["numbers"]
    match table["law"]:
        case "fixed":
            return Fraction(numbers[0] ** 2)
        case "uniform":
            low, high = numbers[0], numbers[0] + numbers[1] - 1
            return Fraction(low * low + low * high + high * high, 3)
        case "exponential":
            return Fraction(2 * numbers[0] ** 2)
        case "hyperexponential":
            frequent = Fraction(numbers[0], ONE)
            return 2 * (frequent * numbers[1] ** 2 + (1 - frequent) * numbers[2] ** 2)
        case "empirical":
            steps = [Fraction(low * low + low * high + high * high, 3) for low, high in pairwise(numbers)]
            return sum(steps, Fraction(0)) / len(steps)
        case _:
            return None


def longest_work(table: dict[str, Any]) -> int:
    """Return the longest work in ns that can be drawn."""
    numbers = table["numbers"]
    match table["law"]:
        case "uniform":
            longest = numbers[0] + numbers[1] - 1
        case "exponential" | "hyperexponential":
            longest = (max(numbers[-2:]) * _WORD_BITS * logarithms()[0] >> 24) + 1
        case _:
            longest = numbers[-1]
    return int(max(1, longest))


def offspring(law: laws.Spawn, max_depth: int) -> dict[str, Any]:
    """Compile the distribution of the number of children into values and probability thresholds.

    Return {"values", "thresholds"}: a 32-bit draw u has values[i] children, where i is the number of thresholds <= u.
    There is one row of thresholds for all depths, or one row per depth if the law depends on the depth.
    """
    values, row = _offspring_at(law, Fraction(1))
    if getattr(law, "shape", "constant") == "constant" or max_depth == 0:
        return {"values": values, "thresholds": [row]}
    rows = [_offspring_at(law, 1 - Fraction(depth, max_depth))[1] for depth in range(max_depth)]
    width = max(len(each) for each in rows)
    return {"values": values[:width], "thresholds": [each + [ONE] * (width - len(each)) for each in rows]}


def _offspring_at(law: laws.Spawn, scale: Fraction) -> tuple[list[int], list[int]]:
    match law:
        case laws.FixedSpawn():
            return [law.children], [ONE]
        case laws.BinomialSpawn():
            childless = 1 - Fraction(repr(law.probability)) * scale
            return [0, law.children], [round(childless * ONE), ONE]
        case laws.GeometricSpawn():
            mean = Fraction(repr(law.mean)) * scale
            thresholds = geometric_table(mean) if mean > _CHILDLESS else []
        case laws.PoissonSpawn():
            mean = Fraction(repr(law.mean)) * scale
            thresholds = poisson_table(mean) if mean > _CHILDLESS else []
        case laws.PmfSpawn():
            exact = [Fraction(repr(each)) for each in law.probabilities]
            thresholds = [round(each / sum(exact) * ONE) for each in accumulate(exact[:MAX_CHILDREN])]
        case _:
            raise TypeError(f"no table for {law.distribution}")
    row = [*(each for each in thresholds if each < ONE), ONE]
    return list(range(len(row))), row


def geometric_table(mean: Fraction) -> list[int]:
    """Return the thresholds of a geometric distribution for 0, 1, 2, ... or fewer children.

    The probability of k or fewer children is 1 - again^(k+1).
    """
    again = mean / (1 + mean)
    powers = [(again.numerator**k, again.denominator**k) for k in range(1, MAX_CHILDREN + 1)]
    return [nearest_threshold(ONE * (under - over), under) for over, under in powers]


def poisson_table(mean: Fraction) -> list[int]:
    """Return the thresholds of a Poisson distribution for 0, 1, 2, ... or fewer children.

    They are cumulative sums of none * mean^k / k!, over the denominator of the last term.
    """
    none = childless_probability(mean)
    last = MAX_CHILDREN - 1
    weight = none.numerator * mean.denominator**last * math.factorial(last)
    under = none.denominator * mean.denominator**last * math.factorial(last)
    weights = [weight]
    for children in range(1, MAX_CHILDREN):
        weights.append(weights[-1] * mean.numerator // (mean.denominator * children))
    return [nearest_threshold(ONE * each, under) for each in accumulate(weights)]


def childless_probability(mean: Fraction) -> Fraction:
    """Return the probability that a thread has no children, e^-mean, to 60 digits."""
    with localcontext(prec=60):
        return Fraction((-(Decimal(mean.numerator) / mean.denominator)).exp())


def nearest_threshold(over: int, under: int) -> int:
    """Return over / under rounded half to even, without reducing the fraction first."""
    whole, rest = divmod(over, under)
    return whole + (2 * rest > under or (2 * rest == under and whole % 2 == 1))


def offspring_draws(table: dict[str, Any], depth: int) -> list[tuple[int, int]]:
    """Return pairs (number of children, number of the 2^32 draws that result in it) for a thread at a depth."""
    rows: Sequence[list[int]] = table["thresholds"]
    row = rows[min(depth, len(rows) - 1)]
    draws = [high - low for low, high in zip([0, *row], row, strict=False)]
    return list(zip(table["values"], draws, strict=True))


def offspring_weights(table: dict[str, Any], depth: int) -> list[tuple[int, Fraction]]:
    """Return pairs (number of children, exact probability in the kernels) for a thread at a depth."""
    return [(children, Fraction(draws, ONE)) for children, draws in offspring_draws(table, depth)]


def mean_offspring(table: dict[str, Any], depth: int) -> Fraction:
    """Return the expected number of children of a thread at a depth."""
    return Fraction(drawn_offspring(table, depth), ONE)


def drawn_offspring(table: dict[str, Any], depth: int) -> int:
    """Return the total number of children over all 2^32 draws at a depth."""
    return sum(children * draws for children, draws in offspring_draws(table, depth))
