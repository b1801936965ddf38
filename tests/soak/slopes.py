"""Growth of a figure over time: its slope with an error that holds for samples which depend on those before."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_BLOCKS = 10
#: Samples without which there is no slope.
LEAST = 3 * _BLOCKS
#: A slope must exceed its bound by this many standard errors.
_ERRORS = 3.0


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Growth that is too much: per hour, and over the whole time, so that a short run does not judge noise."""

    per_hour: float
    whole: float


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Growth of one figure, in its unit per hour."""

    begin: float
    end: float
    per_hour: float
    error: float
    #: Slope of the last half alone: what is only warming up grows less there.
    last_half: float
    #: Median slope from one block to the next: a process that loads one more kernel grows in a single block.
    typical: float

    def exceeds(self, bound: Bound) -> bool:
        """Return True if it grew by more than the bound, by more than three errors, and in most blocks to the end."""
        surely = self.per_hour - _ERRORS * self.error
        return min(surely, self.last_half, self.typical) > bound.per_hour and self.end - self.begin > bound.whole


def growth(seconds: Sequence[float], values: Sequence[float]) -> Growth | None:
    """Fit a line through medians of ten blocks of samples; None for fewer than three samples a block."""
    if len(seconds) < LEAST:
        return None
    cuts = [len(seconds) * number // _BLOCKS for number in range(_BLOCKS + 1)]
    times = [statistics.fmean(seconds[low:high]) / 3600 for low, high in pairwise(cuts)]
    medians = [statistics.median(values[low:high]) for low, high in pairwise(cuts)]
    slope, error = _line(times, medians)
    half = _line(times[_BLOCKS // 2 :], medians[_BLOCKS // 2 :])[0]
    points = list(zip(times, medians, strict=True))
    typical = statistics.median((y - x) / (later - earlier) for (earlier, x), (later, y) in pairwise(points))
    return Growth(begin=medians[0], end=medians[-1], per_hour=slope, error=error, last_half=half, typical=typical)


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Return slope and its standard error, by least squares."""
    slope, intercept = statistics.linear_regression(xs, ys)
    rest = sum((y - intercept - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    spread = sum((x - statistics.fmean(xs)) ** 2 for x in xs)
    return slope, math.sqrt(rest / (len(xs) - 2) / spread)
