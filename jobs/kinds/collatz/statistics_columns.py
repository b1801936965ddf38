"""Columns for drawing, cut from a job's range by its parameters alone: no division into leases changes a bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

#: Columns begin at multiples of 2^ALIGNED_BITS at most.
ALIGNED_BITS = 22


class Layout(NamedTuple):
    """Column j holds the numbers of [base + j width, base + (j + 1) width) that are in the job."""

    base: int
    width: int

    def slices(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(column, low, high) of start..end-1, in order."""
        while start < end:
            column = (start - self.base) // self.width
            high = min(end, self.base + (column + 1) * self.width)
            yield column, start, high
            start = high


def layout(start: int, count: int, columns: int) -> Layout:
    """Lay out at most `columns` columns. They begin at multiples of about a fortieth of their width: it is faster."""
    aligned = 1 << max(0, min(ALIGNED_BITS, (-(-count // columns)).bit_length() - 6))
    width = -(-(count + aligned - 1) // columns)
    return Layout(base=start // aligned * aligned, width=-(-width // aligned) * aligned)
