"""Table of a Pareto law cut above: floats wherever they leave no doubt about the nearest integer, decimals elsewhere.

Three tiers, each about a hundred times as slow as the one before and asked only where that one is in doubt: floats, a
least work by Newton's steps, a least work by bisection. All give the same integers.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise

#: 64 ln 2, the greatest logarithm of a random word, in sixteenths, and one point beyond.
POINTS = 711
#: Probabilities of the tail at the points.
_TAILS = tuple(math.exp(-i / 16) for i in range(POINTS))
#: A float is in doubt when it is as near to a half as this share of it; floats are right to a hundredth of that.
DOUBT = 1e-12
#: Digits of decimals.
_DIGITS = 30
#: A mean that Newton's steps must meet to this share; it may move a point by a ten-thousandth of `DECIMAL_DOUBT`.
_NEWTON_ERROR = Decimal("1e-22")
#: Nanoseconds from a half within which the least work is bisected.
DECIMAL_DOUBT = Decimal("1e-6")
#: From this least work over the longest on, differences cancel too many digits: it is bisected.
_NEARLY_CONSTANT = 0.999


@lru_cache(256)
def points(mean_us: float, alpha: float, max_ratio: float) -> tuple[int, ...]:
    """Work in ns where the logarithm of the tail's probability is -i/16, i = 0..710, of the law between a least work
    and max_ratio times the mean; the least is the one that gives the mean.
    """
    exact = Exact(mean_us, alpha, max_ratio)
    return tuple(
        round(near) if abs(near % 1 - 0.5) > near * DOUBT else exact.point(i)
        for i, near in enumerate(near_points(mean_us, alpha, max_ratio))
    )


def near_points(mean_us: float, alpha: float, max_ratio: float) -> list[float]:
    """The points in floats, right to a few 1e-15: enough to tell the nearest integer wherever there is no doubt."""
    log_ratio = _log_ratio(alpha, max_ratio)
    least, floor = mean_us * 1000 * max_ratio * math.exp(-log_ratio), math.exp(-alpha * log_ratio)
    return [least * (floor + (1 - floor) * tail) ** (-1 / alpha) for tail in _TAILS]


def _log_ratio(alpha: float, max_ratio: float) -> float:
    """Logarithm of the longest over the least work."""

    def over_mean(log_ratio: float) -> float:
        """Logarithm of the law's mean over the mean that is asked for; it falls."""
        shares = math.expm1((1 - alpha) * log_ratio) / math.expm1(-alpha * log_ratio)
        return math.log(alpha / (alpha - 1) * shares * max_ratio) - log_ratio

    low, high = 0.0, math.log(max_ratio * alpha / (alpha - 1)) + 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if over_mean(middle) > 0 else (low, middle)
    return high


class Exact:
    """The points in decimals, one by one."""

    def __init__(self, mean_us: float, alpha: float, max_ratio: float) -> None:
        self._mean, self._alpha = Decimal(repr(mean_us)) * 1000, Decimal(repr(alpha))
        self._max_ratio = max_ratio
        with localcontext(prec=_DIGITS):
            self._most = self._mean * Decimal(repr(max_ratio))

    def point(self, i: int) -> int:
        """Work at point i in ns."""
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
        """The least work in ns, to 24 digits."""
        with localcontext(prec=_DIGITS):
            low, high = self._mean * (self._alpha - 1) / self._alpha / 2, self._mean
            for _ in range(80):
                middle = (low + high) / 2
                low, high = (low, middle) if self._mean_from(middle) > self._mean else (middle, high)
            return high

    @cached_property
    def _near_ratio(self) -> float:
        """The least work over the longest, as floats have it."""
        return math.exp(-_log_ratio(float(self._alpha), self._max_ratio))

    @cached_property
    def near_least(self) -> Decimal:
        """The least work in ns, to 20 digits: by Newton's steps from the floats' value where they lead there."""
        if self._near_ratio > _NEARLY_CONSTANT:
            return self.least
        with localcontext(prec=_DIGITS):
            least, slope = self._most * Decimal(self._near_ratio), Decimal(self._slope())
            for _ in range(2):
                least *= 1 - (self._mean_from(least) / self._mean - 1) / slope
            met = abs(self._mean_from(least) / self._mean - 1) < _NEWTON_ERROR
            return least if met else self.least

    def _slope(self) -> float:
        """Return the relative growth of the mean over that of the least work."""
        alpha = float(self._alpha)
        body, tail = self._near_ratio ** (alpha - 1), self._near_ratio**alpha
        return 1 - (alpha - 1) * body / (1 - body) + alpha * tail / (1 - tail)

    def _mean_from(self, least: Decimal) -> Decimal:
        """The law's mean in ns when it begins at `least`."""
        alpha, ratio = self._alpha, least / self._most
        return least * alpha / (alpha - 1) * (1 - ratio ** (alpha - 1)) / (1 - ratio**alpha) if ratio < 1 else least


@lru_cache
def shares() -> tuple[tuple[int, ...], int]:
    """Numerators and common denominator of each point's share in the mean: between points work is linear in -ln(U)."""
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
