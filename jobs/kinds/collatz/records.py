"""Finds the records of a range: numbers with a longer trajectory or a greater peak than all smaller numbers.

The search works like statistics, but drops a residue class once the class cannot contain a record. README.md proves
that this is exact.
"""

from __future__ import annotations

from math import log
from time import monotonic
from typing import Any

import numpy as np

from jobs.kinds.collatz import records_published as published
from jobs.kinds.collatz import tables
from jobs.kinds.collatz.partials import running_maxima
from jobs.kinds.collatz.statistics import (
    NARROW_END,
    TICK_SECONDS,
    WIDE_LEVELS,
    Counts,
    block_limits,
    digits,
    pieces,
    tails,
    tails_at,
)
from jobs.kinds.collatz.wide import LIMB
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

#: Number of blocks after which the limits for dropping classes are recomputed, because new records can raise them.
BLOCKS_A_FLOOR = 64
#: Maximum number of passes of 16 steps; the remaining residue classes are then computed step by step.
PASSES = 40
#: Maximum peak that two 64-bit words can store; numbers with greater peaks are processed as Python integers.
MOST_PATH = 2**126 - 1


def delay_floor(n: int, steps: int, record: int) -> int:
    """Return x: a number >= n that reaches x or less after `steps` shortcut steps has at most the delay `record`.

    With c odd steps, 2^steps x >= 3^c n, and the published records bound the delay of x.
    """
    best = 0
    ends = [following for following, _ in published.DELAYS[1:]] + [published.DELAYS[-1][0] + 1]
    for (first, delay), end in zip(published.DELAYS, ends, strict=True):
        room = record - steps - delay - steps * log(2, 3) + log(n, 3)
        # make the value slightly smaller, because floats are rounded
        most = min(end - 1, int(3.0 ** min(room, 40) * (1 - 1e-9)) - 1)
        best = max(best, most if most >= first else 0)
    return best


def floors(n: int, bits: int, record: int, path_floor: int) -> list[int]:
    """Return a limit for each pass: residue classes with values up to the limit cannot contain a record.

    The limits apply to blocks of 2^bits numbers from n on. `narrow_rare` drops these classes.
    """
    every = [min(path_floor, delay_floor(n, bits + 16 * step, record)) for step in range(PASSES)]
    return [floor for step, floor in enumerate(every) if step == 0 or floor > 2**12]


class Records(Counts):
    """Collects the record candidates of a lease: numbers whose delay or peak exceeds the known maximum.

    The first rows contain the known maxima.
    """

    def __init__(self, origin: int, delay: int, path: int, complete: int | None) -> None:
        super().__init__(origin)
        #: Largest number up to which the known maxima are complete, or None if they are complete up to the job's start.
        self.complete = complete
        self.known = [delay, path]
        #: Number of table rows that contain known maxima; 0 if the lease starts at the number 1.
        self.rows = int(delay >= 0)
        if self.rows:
            path = min(path, MOST_PATH)
            self.notes.by_delay[0] = 0, delay
            self.notes.by_path[0] = 0, path >> 64, path % 2**64
            self.notes.sizes[:2] = 1
        self.left = 0

    def take(self, start: int, end: int, bits: int) -> None:
        if bits < max(WIDE_LEVELS):
            super().take(start, end, bits)
            return
        if not self.left:
            self._look_ahead(start, bits)
        self.left -= 1
        low, high = np.uint64(start - self.origin), np.uint64(end - self.origin)
        failure, walked = block_limits(start, low, high, bits, self.notes)
        narrow = start < NARROW_END
        block = tails().narrow_rare if narrow else tails_at(start).wide_rare
        number, lookup = digits(start >> bits, narrow), tables.lookup()
        failure = failure or block(number, bits, self.groups, lookup, low, self.floors, walked, self.notes, self.tile)
        self.check(failure, start, end)

    def _look_ahead(self, start: int, bits: int) -> None:
        size = self.notes.sizes[0]
        record = int(self.notes.by_delay[size - 1, 1]) if size else -1
        limits = floors(start, bits, record, start - 1 if self.complete is None else self.complete)
        self.floors = np.array([[floor >> LIMB for floor in limits], [floor % 2**LIMB for floor in limits]], np.uint64)
        if start < NARROW_END:
            self.floors = np.array([[0] * len(limits), limits], np.uint64)
        h = (start >> bits) + BLOCKS_A_FLOOR
        least = next(c for c in range(bits + 1) if c == bits or 3**c * (h + 1) > limits[0])
        self.groups = tables.groups_from(bits, least)
        self.left = BLOCKS_A_FLOOR

    def candidates(self, count: int) -> Partial:
        sizes = self.notes.sizes.tolist()
        by_delay = self.notes.by_delay[self.rows : sizes[0]].tolist()
        by_path = self.notes.by_path[self.rows : sizes[1]].tolist()
        delays = [[self.origin + place, value] for place, value in by_delay]
        paths = [[self.origin + place, (high << 64) + low] for place, high, low in by_path]
        return {
            "count": count,
            "delay": [row for row in running_maxima(delays + self.wide_delays) if row[1] > self.known[0]],
            "path": [row for row in running_maxima(paths + self.wide_peaks) if row[1] > self.known[1]],
        }


def known_before(spec: Spec, n: int) -> tuple[int, int]:
    """Return the known maximum delay and the known maximum peak of all numbers below n.

    Both come from the job's parameters and from the published records.
    """
    start, known = int(spec["start"]), spec["known"]
    delay = published.maximum_below(published.DELAYS, n, start)
    return max(known["delay"], delay), max(int(known["path"]), published.maximum_below(published.PATHS, n, start))


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Find the record candidates of units lo..hi-1, and return (upto, candidates among units lo..upto-1).

    Stops soon after `tick` returns False.
    """
    start, ticked = int(spec["start"]), monotonic()
    seen = Records(start + lo, *known_before(spec, start + lo), spec["known"]["complete"])
    for low, high, bits in pieces(start + lo, start + hi, spec["batch_size"] or hi - lo, WIDE_LEVELS):
        seen.take(low, high, bits)
        if monotonic() - ticked >= TICK_SECONDS and high < start + hi:
            ticked = monotonic()
            if not tick(high - start):
                return high - start, seen.candidates(high - start - lo)
    return hi, seen.candidates(hi - lo) if lo < hi else {}


def warm() -> None:
    """Compile the functions that only the search for records uses."""
    for start in {2**40, 2 * NARROW_END, min(tails().END, 2**95)}:
        bits = max(WIDE_LEVELS)
        spec: dict[str, Any] = {"start": str(start), "batch_size": None}
        spec["known"] = {"delay": 1500, "path": str(2**90), "complete": None}
        run(spec, 0, 1 << bits, lambda upto: True)
