"""Division of a range into columns for plots. The columns depend only on the job's parameters, not on its leases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

#: Maximum alignment of columns in bits: a column starts at a multiple of a power of two, at most 2^ALIGNED_BITS.
ALIGNED_BITS = 22


class Layout(NamedTuple):
    """Division of a range into columns. Column j contains the numbers in [base + j width, base + (j + 1) width)."""

    base: int
    width: int

    def slices(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Divide the numbers start..end-1 at the bounds of columns, and yield the parts as (column, low, high)."""
        while start < end:
            column = (start - self.base) // self.width
            high = min(end, self.base + (column + 1) * self.width)
            yield column, start, high
            start = high


def layout(start: int, count: int, columns: int) -> Layout:
    """Divide a range into at most `columns` columns, aligned to about a fortieth of their width for speed."""
    aligned = 1 << max(0, min(ALIGNED_BITS, (-(-count // columns)).bit_length() - 6))
    width = -(-(count + aligned - 1) // columns)
    return Layout(base=start // aligned * aligned, width=-(-width // aligned) * aligned)
