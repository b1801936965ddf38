"""Distributions compiled into integers, once, where a job is planned; kernels see nothing else.

Only exact arithmetic (`fractions`, `decimal`): no result of a machine's libm can reach a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any

from jobs.kinds.thread import parameters as given

#: Offspring are cut here: a draw above it counts as this many children.
MAX_CHILDREN = 64
#: Thresholds are compared with 32 random bits.
ONE = 2**32
#: A random word of zeros is the longest work: 64 ln 2 times the mean.
_WORD_BITS = 64


@lru_cache
def logarithms() -> tuple[int, ...]:
    """-ln((1024+i)/2048) for i in 0..1024, in units of 2^-24, rounded to nearest."""
    with localcontext(prec=40):
        scale = Decimal(2**24)
        return tuple(int((-(Decimal(1024 + i) / 2048).ln() * scale).to_integral_value()) for i in range(1025))


def nanoseconds(microseconds: float) -> int:
    """Nearest nanosecond, halves to even, of the number as it is written in decimal."""
    return round(Fraction(repr(microseconds)) * 1000)


def work(law: given.Work) -> dict[str, Any]:
    """{"law", "numbers"}: what a draw of work needs, in ns; README, `Random numbers`."""
    match law:
        case given.FixedWork():
            numbers = [nanoseconds(law.mean_us)]
        case given.UniformWork():
            low, high = nanoseconds(law.min_us), nanoseconds(law.max_us)
            numbers = [low, high - low + 1]
        case given.ExponentialWork():
            numbers = [nanoseconds(law.mean_us)]
        case given.HyperexponentialWork():
            numbers = _branches(law.mean_us, law.scv)
        case given.EmpiricalWork():
            numbers = [nanoseconds(quantile) for quantile in law.quantiles_us]
        case _:
            raise TypeError(f"no table for {law.distribution}")
    return {"law": law.distribution, "numbers": numbers}


def _branches(mean_us: float, scv: float) -> list[int]:
    """Threshold of the frequent branch and both branches' means: two exponentials with balanced means."""
    with localcontext(prec=40):
        ratio = Decimal(repr(scv))
        frequent = (1 + ((ratio - 1) / (ratio + 1)).sqrt()) / 2
        mean = Decimal(repr(mean_us)) * 1000
        means = (mean / (2 * frequent), mean / (2 * (1 - frequent)))
        return [round(Fraction(frequent) * ONE), *(round(Fraction(each)) for each in means)]


def mean_work(table: dict[str, Any]) -> Fraction:
    """Expected work of a thread in ns, without the clamp at 1 ns."""
    numbers = table["numbers"]
    match table["law"]:
        case "uniform":
            return Fraction(2 * numbers[0] + numbers[1] - 1, 2)
        case "hyperexponential":
            frequent = Fraction(numbers[0], ONE)
            return frequent * numbers[1] + (1 - frequent) * numbers[2]
        case "empirical":
            return Fraction(sum(numbers) * 2 - numbers[0] - numbers[-1], 2 * (len(numbers) - 1))
        case _:
            return Fraction(numbers[0])


def longest_work(table: dict[str, Any]) -> int:
    """No draw is longer, in ns."""
    numbers = table["numbers"]
    match table["law"]:
        case "uniform":
            longest = numbers[0] + numbers[1] - 1
        case "exponential" | "hyperexponential":
            longest = (max(numbers[-2:]) * _WORD_BITS * logarithms()[0] >> 24) + 1
        case _:
            longest = numbers[-1]
    return int(max(1, longest))


def offspring(law: given.Spawn, max_depth: int) -> dict[str, Any]:
    """{"values", "thresholds"}: a draw u of 32 bits has values[i] children, i = how many thresholds are <= u.

    One row of thresholds for all depths, or one a depth where the law changes with depth.
    """
    values, row = _offspring_at(law, Fraction(1))
    if getattr(law, "shape", "constant") == "constant" or max_depth == 0:
        return {"values": values, "thresholds": [row]}
    rows = [_offspring_at(law, 1 - Fraction(depth, max_depth))[1] for depth in range(max_depth)]
    width = max(len(each) for each in rows)
    return {"values": values[:width], "thresholds": [each + [ONE] * (width - len(each)) for each in rows]}


def _offspring_at(law: given.Spawn, scale: Fraction) -> tuple[list[int], list[int]]:
    match law:
        case given.FixedSpawn():
            return [law.children], [ONE]
        case given.BinomialSpawn():
            childless = 1 - Fraction(repr(law.probability)) * scale
            return [0, law.children], [round(childless * ONE), ONE]
        case given.GeometricSpawn():
            weights = _geometric(Fraction(repr(law.mean)) * scale)
        case given.PoissonSpawn():
            weights = _poisson(Fraction(repr(law.mean)) * scale)
        case given.PmfSpawn():
            exact = [Fraction(repr(each)) for each in law.probabilities]
            weights = [each / sum(exact) for each in exact]
        case _:
            raise TypeError(f"no table for {law.distribution}")
    thresholds = [round(each * ONE) for each in accumulate(weights[:MAX_CHILDREN])]
    row = [*(each for each in thresholds if each < ONE), ONE]
    return list(range(len(row))), row


def _geometric(mean: Fraction) -> list[Fraction]:
    again = mean / (1 + mean)
    return [(1 - again) * again**children for children in range(MAX_CHILDREN)]


def _poisson(mean: Fraction) -> list[Fraction]:
    with localcontext(prec=60):
        none = Fraction((-(Decimal(mean.numerator) / mean.denominator)).exp())
    weights = [none]
    for children in range(1, MAX_CHILDREN):
        weights.append(weights[-1] * mean / children)
    return weights


def offspring_weights(table: dict[str, Any], depth: int) -> list[tuple[int, Fraction]]:
    """(children, probability) at a depth, exactly as kernels draw them."""
    rows: Sequence[list[int]] = table["thresholds"]
    row = rows[min(depth, len(rows) - 1)]
    steps = [high - low for low, high in zip([0, *row], row, strict=False)]
    return [(value, Fraction(step, ONE)) for value, step in zip(table["values"], steps, strict=True)]


def mean_offspring(table: dict[str, Any], depth: int) -> Fraction:
    return sum((value * weight for value, weight in offspring_weights(table, depth)), Fraction(0))
