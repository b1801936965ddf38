"""The Collatz kind on a CPU core: cuts a lease into blocks and singles and gathers what they find."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Any

import numpy as np

from jobs.kinds.collatz import blocks, tables, trajectory
from jobs.models import Partial, Spec
from jobs.registry import Tick

#: Sizes of blocks, as powers of two, the greatest first.
LEVELS = (22, 16)
#: Most single numbers between looks at the clock.
SINGLES = 2**16
#: Seconds between calls of tick.
TICK_SECONDS = 0.08

_FAILURES = {
    blocks.TOO_WIDE: "a value passes 2^126",
    blocks.TOO_LONG: f"a delay reaches {blocks.DELAYS}",
    blocks.TOO_MANY_RECORDS: f"more than {blocks.DELAYS} records",
}


class Tally:
    """What is found in a lease, its numbers taken in ascending order."""

    def __init__(self) -> None:
        self.found = blocks.nothing_found()

    def take(self, start: int, end: int, bits: int) -> None:
        """Numbers start..end-1: one block of 2^bits, or singles when bits is 0."""
        singles = blocks.singles
        failure = self._block(start, end, bits) if bits else singles(np.uint64(start), np.uint64(end), self.found)
        if failure:
            raise OverflowError(f"{_FAILURES[failure]} among the numbers {start}..{end - 1}")

    def _block(self, start: int, end: int, bits: int) -> int:
        h = start >> bits
        # no first `bits` steps of this block reach more, nor does what ends in the table of delays
        high, low = divmod(max(tables.LOW_PEAK, 2 * 3**bits * (h + 1)), 2**64)
        failure, reached = blocks.climb(np.uint64(start), np.uint64(end), np.uint64(high), np.uint64(low), self.found)
        groups, lookup = tables.groups(bits), tables.lookup()
        return failure or blocks.block(np.uint64(h), bits, groups, lookup, bool(reached == end), self.found)

    def partial(self) -> Partial:
        delays, paths = self.found.sizes.tolist()
        return {
            "histogram": [[delay, count] for delay, count in enumerate(self.found.histogram.tolist()) if count],
            "delay": self.found.by_delay[:delays].tolist(),
            "path": [[n, (high << 64) + low] for n, high, low in self.found.by_path[:paths].tolist()],
        }


def pieces(start: int, end: int, most: int) -> Iterator[tuple[int, int, int]]:
    """(start, end, bits) of launches of at most `most` numbers: the greatest aligned blocks that fit, else singles."""
    while start < end:
        for bits in LEVELS:
            size = 1 << bits
            # a positive multiple is at least 2^bits, from where on no block step runs through 1
            if start % size == 0 and size <= min(most, end - start):
                yield start, start + size, bits
                break
        else:
            bits, size = 0, min(SINGLES - start % SINGLES, most, end - start)
            yield start, start + size, bits
        start += size


def _statistics(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    start, tally, told = int(spec["start"]), Tally(), monotonic()
    for low, high, bits in pieces(start + lo, start + hi, spec["batch_size"] or hi - lo):
        tally.take(low, high, bits)
        if monotonic() - told >= TICK_SECONDS and high < start + hi:
            told = monotonic()
            if not tick(high - start):
                return high - start, tally.partial()
    return hi, tally.partial() if lo < hi else {}


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """(upto, partial of units lo..upto-1); stops soon after tick said so."""
    todo: Any = trajectory.run if spec["mode"] == "trajectory" else _statistics
    upto, partial = todo(spec, lo, hi, tick)
    return upto, partial


def warm() -> None:
    """Compiles every function and builds every table."""
    for bits in LEVELS:
        Tally().take(1 << bits, 2 << bits, bits)
    Tally().take(1, 100, 0)
