"""Computes the integer table of a bounded Pareto distribution, with floats if their precision is enough.

There are three methods, each about a hundred times slower than the one before and used only if the one before leaves
doubt: floats, Newton's method for the least work, and bisection for it. All produce the same integers. Newton's method
and bisection use decimals.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise

#: Number of points of the table: one per sixteenth up to 64 ln 2, the largest logarithm of a random number, plus one.
POINTS = 711
#: Probability at each point that the work of a thread is greater.
_TAILS = tuple(math.exp(-i / 16) for i in range(POINTS))
#: Relative distance from .5 within which a float is not precise enough to determine the nearest integer.
DOUBT = 1e-12
#: Precision of decimal arithmetic in digits.
_DIGITS = 30
#: Maximum relative error of the mean after Newton's method; it moves a point by less than 1e-4 of `DECIMAL_DOUBT`.
_NEWTON_ERROR = Decimal("1e-22")
#: Distance in ns of a point from a half within which the minimum work is computed by bisection.
DECIMAL_DOUBT = Decimal("1e-6")
#: Ratio of minimum to maximum work above which cancellation loses too many digits for Newton's method.
_NEARLY_CONSTANT = 0.999


@lru_cache(256)
def points(mean_us: float, alpha: float, max_ratio: float) -> tuple[int, ...]:
    """Return the work in ns at which the logarithm of the tail probability is -i/16, for i = 0..710.

    The law lies between a least work and max_ratio times the mean; the least work is chosen to match the mean.
    """
    exact = Exact(mean_us, alpha, max_ratio)
    return tuple(
        round(near) if abs(near % 1 - 0.5) > near * DOUBT else exact.point(i)
        for i, near in enumerate(near_points(mean_us, alpha, max_ratio))
    )


def near_points(mean_us: float, alpha: float, max_ratio: float) -> list[float]:
    """Return the points of the table as floats with a relative error of a few 1e-15."""
    log_ratio = _log_ratio(alpha, max_ratio)
    least, floor = mean_us * 1000 * max_ratio * math.exp(-log_ratio), math.exp(-alpha * log_ratio)
    return [least * (floor + (1 - floor) * tail) ** (-1 / alpha) for tail in _TAILS]


def _log_ratio(alpha: float, max_ratio: float) -> float:
    """Return the logarithm of the ratio of maximum to minimum work."""

    def over_mean(log_ratio: float) -> float:
        """Return the logarithm of the ratio of the law's mean to the requested mean, a decreasing function."""
        shares = math.expm1((1 - alpha) * log_ratio) / math.expm1(-alpha * log_ratio)
        return math.log(alpha / (alpha - 1) * shares * max_ratio) - log_ratio

    low, high = 0.0, math.log(max_ratio * alpha / (alpha - 1)) + 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if over_mean(middle) > 0 else (low, middle)
    return high


class Exact:
    """Points of a bounded Pareto distribution in decimal arithmetic, computed one at a time."""

    def __init__(self, mean_us: float, alpha: float, max_ratio: float) -> None:
        self._mean, self._alpha = Decimal(repr(mean_us)) * 1000, Decimal(repr(alpha))
        self._max_ratio = max_ratio
        with localcontext(prec=_DIGITS):
            self._most = self._mean * Decimal(repr(max_ratio))

    def point(self, i: int) -> int:
        """Return the work in ns at point i."""
        with localcontext(prec=_DIGITS):
            time = self._time(i, self.near_least)
            if abs(time % 1 - Decimal("0.5")) < DECIMAL_DOUBT:
                time = self._time(i, self.least)
            return round(Fraction(time))

    def _time(self, i: int, least: Decimal) -> Decimal:
        floor = (least / self._most) ** self._alpha
        return least * (floor + (1 - floor) * (Decimal(-i) / 16).exp()) ** (-1 / self._alpha)

    @cached_property
    def least(self) -> Decimal:
        """Return the minimum work in ns to 24 digits, by bisection."""
        with localcontext(prec=_DIGITS):
            low, high = self._mean * (self._alpha - 1) / self._alpha / 2, self._mean
            for _ in range(80):
                middle = (low + high) / 2
                low, high = (low, middle) if self._mean_from(middle) > self._mean else (middle, high)
            return high

    @cached_property
    def _near_ratio(self) -> float:
        """Return the ratio of minimum to maximum work as a float."""
        return math.exp(-_log_ratio(float(self._alpha), self._max_ratio))

    @cached_property
    def near_least(self) -> Decimal:
        """Return the minimum work in ns to 20 digits, by Newton's method if it converges."""
        if self._near_ratio > _NEARLY_CONSTANT:
            return self.least
        with localcontext(prec=_DIGITS):
            least, slope = self._most * Decimal(self._near_ratio), Decimal(self._slope())
            for _ in range(2):
                least *= 1 - (self._mean_from(least) / self._mean - 1) / slope
            met = abs(self._mean_from(least) / self._mean - 1) < _NEWTON_ERROR
            return least if met else self.least

    def _slope(self) -> float:
        """Return the derivative of the logarithm of the mean with respect to the logarithm of the minimum work."""
        alpha = float(self._alpha)
        body, tail = self._near_ratio ** (alpha - 1), self._near_ratio**alpha
        return 1 - (alpha - 1) * body / (1 - body) + alpha * tail / (1 - tail)

    def _mean_from(self, least: Decimal) -> Decimal:
        """Return the mean work in ns for a minimum work."""
        alpha, ratio = self._alpha, least / self._most
        return least * alpha / (alpha - 1) * (1 - ratio ** (alpha - 1)) / (1 - ratio**alpha) if ratio < 1 else least


@lru_cache
def shares() -> tuple[tuple[int, ...], int]:
    """Return the weight of each point in the mean work, as numerators with a common denominator.

    Between two points, work is linear in -ln(U).
    """
    with localcontext(prec=40):
        step = Decimal(1) / 16
        tails = [(-step * i).exp() for i in range(POINTS)]
        after = [(low - high) / step for low, high in pairwise(tails)]
        each = [Decimal(0)] * POINTS
        for i, flow in enumerate(after):
            each[i] += tails[i] - flow
            each[i + 1] += flow - tails[i + 1]
    exact = [Fraction(share) for share in each]
    common = math.lcm(*(share.denominator for share in exact))
    return tuple(share.numerator * (common // share.denominator) for share in exact), common
