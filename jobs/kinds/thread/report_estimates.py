"""Means, confidence intervals and percentiles computed from exact sums.

The code uses only + - * / and square roots, which IEEE 754 rounds identically everywhere, and rounds the results to ten
digits. The same partial therefore produces the same text on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from math import isqrt, sqrt

from jobs.kinds.thread import rows
from jobs.kinds.thread.partials import Histogram, pairs

_PI = 3.141592653589793
#: Degrees of freedom from which Student's t is computed by a Cornish-Fisher expansion, with an error of 1e-8.
_MANY = 60

Interval = tuple[float, float] | None


def round_digits(value: Fraction | float) -> float:
    """Round a number to ten significant digits."""
    return float(f"{float(value):.10g}")


def root(value: Fraction) -> float:
    """Return the square root of a nonnegative fraction without an intermediate float, which could overflow."""
    scaled = (value.numerator << 128) // value.denominator
    return isqrt(scaled) / 2**64


def variance(count: int, total: int, squares: int) -> Fraction:
    """Return the sample variance of `count` > 1 values from their sum and their sum of squares."""
    return Fraction(count * squares - total * total, count * (count - 1))


@lru_cache
def student(level: float, freedom: int) -> float:
    """Return t with P(-t < T < t) = level for Student's T with `freedom` degrees of freedom."""
    if freedom >= _MANY:
        return _cornish_fisher(normal(level), freedom)
    return _bisect(lambda t: _student_within(t, freedom), level, 1e5)


@lru_cache
def normal(level: float) -> float:
    """Return z with P(-z < Z < z) = level for a standard normal Z."""
    return _bisect(_normal_within, level, 8.0)


def _bisect(within: Callable[[float], float], level: float, high: float) -> float:
    """Return the argument at which an increasing function reaches the level, by bisection."""
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if within(middle) < level:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _normal_within(z: float) -> float:
    """Return P(-z < Z < z) from the series 2 z phi(z) (1 + z^2/3 + z^4/15 + ...)."""
    term = total = z
    for odd in range(3, 600, 2):
        term *= z * z / odd
        total += term
    return 2 * total * _exponential(-z * z / 2) / sqrt(2 * _PI)


def _exponential(x: float) -> float:
    """Return e^x for -50 < x <= 0 by repeated squaring."""
    small, term, total = x / 1024, 1.0, 1.0
    for order in range(1, 20):
        term *= small / order
        total += term
    for _ in range(10):
        total *= total
    return total


def _student_within(t: float, freedom: int) -> float:
    """Return P(-t < T < t) by the finite series in cos(theta), where tan(theta) = t / sqrt(freedom)."""
    cosine = sqrt(freedom / (freedom + t * t))
    sine = t / sqrt(freedom + t * t)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    if freedom == 1:
        total = 0.0
    for step in range(1 + odd, freedom - 1, 2):
        term *= cosine * cosine * step / (step + 1)
        total += term
    return 2 / _PI * (_arctangent(t / sqrt(freedom)) + sine * total) if odd else sine * total


def _arctangent(x: float) -> float:
    for _ in range(6):
        x = x / (1 + sqrt(1 + x * x))
    total, power = 0.0, x
    for order in range(1, 30, 2):
        total += power / order
        power *= -x * x
    return total * 64


def _cornish_fisher(z: float, freedom: int) -> float:
    square = z * z
    terms = (
        (square + 1) / 4,
        (5 * square * square + 16 * square + 3) / 96,
        (((3 * square + 19) * square + 17) * square - 15) / 384,
        ((((79 * square + 776) * square + 1482) * square - 1920) * square - 945) / 92160,
    )
    return z * (1 + sum(term / freedom ** (order + 1) for order, term in enumerate(terms)))


def mean_interval(count: int, total: int, squares: int, level: float, scale: Fraction) -> Interval:
    """Return Student's confidence interval for the mean of independent values; None for a single value."""
    if count < 2:
        return None
    mean = Fraction(total, count) * scale
    half = student(level, count - 1) * root(variance(count, total, squares) / count) * float(scale)
    return round_digits(float(mean) - half), round_digits(float(mean) + half)


def quotient_interval(
    count: int, over: tuple[int, int], under: tuple[int, int], product: int, level: float, scale: Fraction
) -> Interval:
    """Return a confidence interval for sum(a)/sum(b) over replicas.

    `over` and `under` are (sum, sum of squares) of a and b, and `product` is the sum of a*b. Values inside a replica
    depend on each other, so only replicas count as independent.
    """
    if count < 2 or under[0] == 0:
        return None
    quotient = Fraction(over[0], under[0])
    error = quotient_error(count, over, under, product)
    half = student(level, count - 1) * error * float(scale)
    return round_digits(float(quotient * scale) - half), round_digits(float(quotient * scale) + half)


def quotient_error(count: int, over: tuple[int, int], under: tuple[int, int], product: int) -> float:
    """Return the standard error of sum(a)/sum(b) over replicas, with the arguments of `quotient_interval`."""
    if count < 2 or under[0] == 0:
        return 0.0
    quotient = Fraction(over[0], under[0])
    residues = over[1] - 2 * quotient * product + quotient**2 * under[1]
    return root(max(Fraction(0), residues) * count / (count - 1)) / under[0]


def share_interval(hits: int, count: int, level: float) -> Interval:
    """Return Wilson's confidence interval for a probability."""
    z, share = normal(level), hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return round_digits(max(0.0, middle - half)), round_digits(min(1.0, middle + half))


def percentile(histogram: Histogram, share: Fraction, least: int, most: int) -> Fraction:
    """Return a percentile of a histogram: the middle of its bin, limited to the range least..most.

    The bin contains the ceil(share * n)-th value.
    """
    entries = pairs(histogram)
    wanted = -(-share * sum(count for _, count in entries) // 1)
    for index, count in entries:
        wanted -= count
        if wanted <= 0:
            low, high = rows.bin_edges(index)
            return min(max(Fraction(low + high, 2), Fraction(least)), Fraction(most))
    return Fraction(most)


def shares(names: Sequence[str]) -> dict[str, Fraction]:
    """Convert percentile names to fractions: p05 to 5/100, p999 to 999/1000."""
    return {name: Fraction(int(name[1:]), 10 ** (len(name) - 1)) for name in names}
