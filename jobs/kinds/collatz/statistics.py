"""Computes statistics of a range: divides the range into blocks and single numbers, and adds up their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from math import log
from time import monotonic
from typing import Any

import numpy as np

from jobs.kinds.collatz import quads, tables, vectors
from jobs.kinds.collatz import statistics_blocks as blocks
from jobs.kinds.collatz import statistics_tails_portable as tails_portable
from jobs.kinds.collatz.partials import Record, column_row, running_maxima, sorted_pairs
from jobs.kinds.collatz.statistics_columns import layout
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

#: Sizes of blocks as powers of two, in descending order.
LEVELS = (24, 22, 16, 10)
#: Block sizes as powers of two, for numbers that are stored in two 64-bit words.
WIDE_LEVELS = LEVELS[1:]
#: Minimum block number; the error bounds of logarithms in README.md do not hold for smaller block numbers.
LEAST_BLOCK = 8
#: Maximum count of numbers that are computed one by one between two checks of the clock.
SINGLES = 2**14
#: Upper bound of numbers that are stored in one 64-bit word; the trajectories of larger numbers exceed it too often.
NARROW_END = 2**44
#: Interval in seconds between calls of `tick`.
TICK_SECONDS = 0.08

_DIGITS = 4
_FAILURES = {
    blocks.TOO_LONG: f"a delay reaches {blocks.DELAYS}",
    blocks.TOO_MANY_RECORDS: f"more than {blocks.DELAYS} records",
    blocks.TOO_MANY_WIDE: f"more than {blocks.DELAYS} numbers that exceed 2^126",
}


class Counts:
    """Collects the histogram and the records of a lease. Numbers must be added in ascending order.

    With columns, numbers must be added one column after the other.
    """

    def __init__(self, origin: int, density: bool = False) -> None:
        self.origin, self.with_density = origin, density
        self.notes, self.tile = blocks.empty_notes(origin), blocks.tile()
        self.histogram: Counter[int] = Counter()
        self.delays: list[Record] = []
        self.columns: list[list[int]] = []
        self.density: list[list[Any]] = []
        # For numbers that exceed two 64-bit words: delays in the current column, delay records, and all peaks.
        self.wide_histogram: Counter[int] = Counter()
        self.wide_delays: list[Record] = []
        self.wide_peaks: list[Record] = []

    def take(self, start: int, end: int, bits: int) -> None:
        """Process numbers start..end-1: one block of 2^bits numbers, or single numbers if `bits` is 0."""
        low, high = np.uint64(start - self.origin), np.uint64(end - self.origin)
        failure = self._block(start, low, high, bits) if bits else blocks.singles(low, high, self.notes)
        self.check(failure, start, end)

    def check(self, failure: int, start: int, end: int) -> None:
        """Raise OverflowError if a launch failed; process the numbers that the launch skipped as Python integers."""
        if failure:
            raise OverflowError(f"{_FAILURES[failure]} for a number in {start}..{end - 1}")
        if self.notes.sizes[2]:
            self._take_wide()

    def _block(self, start: int, low: np.uint64, high: np.uint64, bits: int) -> int:
        failure, walked = block_limits(start, low, high, bits, self.notes)
        narrow, groups, lookup = start < NARROW_END, tables.groups(bits), tables.lookup()
        block, number = tails().narrow if narrow else tails_at(start).wide, digits(start >> bits, narrow)
        return failure or block(number, bits, groups, lookup, low, log(start, 3), walked, self.notes, self.tile)

    def _take_wide(self) -> None:
        """Process the numbers whose trajectories exceed two 64-bit words as Python integers."""
        for place, weight in self.notes.wide[: self.notes.sizes[2]].tolist():
            n = self.origin + place
            delay, peak = walk(n)
            self.wide_peaks.append([n, peak])
            if weight:
                self.wide_histogram[delay] += weight
                self.wide_delays.append([n, delay])
        self.notes.sizes[2] = 0

    def close(self, column: int | None) -> None:
        """Finish a column of a plot. Peaks are kept, because a known maximum speeds up the next column."""
        occurring = np.flatnonzero(self.notes.histogram)
        counts = zip(occurring.tolist(), self.notes.histogram[occurring].tolist(), strict=True)
        histogram = Counter(dict(counts)) + self.wide_histogram
        records = self.notes.by_delay[: self.notes.sizes[0]].tolist()
        delays = running_maxima([[self.origin + place, delay] for place, delay in records] + self.wide_delays)
        self.histogram += histogram
        self.delays = running_maxima(self.delays + delays)
        if column is not None:
            self.columns.append(column_row(column, histogram, delays[-1]))
        if self.with_density:
            self.density.append([column, sorted_pairs(histogram)])
        self.notes.histogram[:], self.notes.sizes[0] = 0, 0
        self.wide_histogram, self.wide_delays = Counter(), []

    def partial(self) -> Partial:
        rows = self.notes.by_path[: self.notes.sizes[1]].tolist()
        peaks = [[self.origin + place, (high << 64) + low] for place, high, low in rows]
        partial: Partial = {
            "histogram": sorted_pairs(self.histogram),
            "delay": self.delays,
            "path": running_maxima(peaks + self.wide_peaks),
        }
        if self.columns:
            partial["columns"] = self.columns
        if self.with_density:
            partial["density"] = self.density
        return partial


def digits(h: int, narrow: bool) -> np.ndarray:
    """Return a block number as one word if `narrow` is True, and otherwise as four digits of 27 bits."""
    return np.array([h] if narrow else [h >> 27 * place & 2**27 - 1 for place in range(_DIGITS)], np.uint64)


def block_limits(start: int, low: np.uint64, high: np.uint64, bits: int, notes: blocks.Notes) -> tuple[int, bool]:
    """Compute numbers of a block one by one until the peaks of all other numbers can be found faster.

    Return (error code, whether all numbers were computed).
    """
    # Upper bound of the values in the first `bits` steps of this block, and of values below the end of the delay table.
    bound = divmod(max(tables.LOW_PEAK, 2 * 3**bits * ((start >> bits) + 1)), 2**64)
    failure, reached = blocks.climb(low, high, np.uint64(bound[0]), np.uint64(bound[1]), notes)
    return failure, bool(reached == high)


def walk(n: int) -> tuple[int, int]:
    """Return (delay, peak) of n, computed with Python integers."""
    delay, peak = 0, n
    while n != 1:
        n = 3 * n + 1 if n & 1 else n >> 1
        peak = max(peak, n)
        delay += 1
    return delay, peak


def all_tails() -> list[Any]:
    """Return the modules that can compute blocks on this CPU, the fastest last."""
    from jobs.kinds.collatz import statistics_tails_quad as tails_quad
    from jobs.kinds.collatz import statistics_tails_vector as tails_vector

    return [tails_portable, *[tails_quad] * quads.available(), *[tails_vector] * vectors.available()]


@lru_cache
def tails() -> Any:
    """Return the fastest module that can compute blocks on this CPU."""
    return all_tails()[-1]


def tails_at(start: int) -> Any:
    """Return the fastest module for blocks that start at `start`, with two words per number."""
    return tails() if start < tails().END else tails_portable


def pieces(
    start: int, end: int, most: int, levels: tuple[int, ...] = LEVELS, wide: tuple[int, ...] = WIDE_LEVELS
) -> Iterator[tuple[int, int, int]]:
    """Divide a range into aligned blocks of 2^bits numbers and into single numbers; yield (start, end, bits).

    Each part has at most `most` numbers. `bits` is 0 for single numbers.
    """
    while start < end:
        for bits in levels if start < NARROW_END else wide:
            size = 1 << bits
            if start % size == 0 and start >= LEAST_BLOCK * size and size <= min(most, end - start):
                yield start, start + size, bits
                break
        else:
            least = 1 << min(LEVELS)
            to_a_block = SINGLES if most < least or start < LEAST_BLOCK * least else least - start % least
            size = min(to_a_block, most, end - start)
            yield start, start + size, 0
        start += size


def wide_levels(end: int) -> tuple[int, ...]:
    """Return the block sizes, as powers of two, for numbers below `end` that are stored in two words.

    The sizes depend on the CPU's instructions.
    """
    return LEVELS if tails().ANY_LEVEL and end <= tails().END else WIDE_LEVELS


def _slices(spec: Spec, start: int, end: int) -> Iterator[tuple[int | None, int, int]]:
    if spec.get("columns"):
        yield from layout(int(spec["start"]), spec["count"], spec["columns"]).slices(start, end)
    else:
        yield None, start, end


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Compute statistics of units lo..hi-1 and return (upto, partial result of units lo..upto-1).

    Stops soon after `tick` returns False.
    """
    start, ticked = int(spec["start"]), monotonic()
    counts = Counts(start + lo, bool(spec.get("density")))
    for column, begin, end in _slices(spec, start + lo, start + hi):
        for low, high, bits in pieces(begin, end, spec["batch_size"] or end - begin, wide=wide_levels(end)):
            counts.take(low, high, bits)
            if monotonic() - ticked >= TICK_SECONDS and high < start + hi:
                ticked = monotonic()
                if not tick(high - start):
                    counts.close(column)
                    return high - start, counts.partial()
        counts.close(column)
    return hi, counts.partial() if lo < hi else {}


def warm() -> None:
    """Compile all functions and build all tables."""
    for bits in LEVELS:
        counts = Counts(LEAST_BLOCK << bits)
        counts.take(LEAST_BLOCK << bits, (LEAST_BLOCK + 1) << bits, bits)
    Counts(1).take(1, 100, 0)
    for start in {2 * NARROW_END, min(tails().END, 2**95)}:
        counts = Counts(start)
        counts.take(start, start + 2**10, 10)
