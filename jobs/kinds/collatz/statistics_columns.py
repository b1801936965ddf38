"""Columns for plots. Their bounds depend only on the job's parameters, so leases do not affect them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

#: Maximum alignment of columns in bits: every column starts at a multiple of at most 2^ALIGNED_BITS.
ALIGNED_BITS = 22


class Layout(NamedTuple):
    """Division of a range into columns. Column j contains the numbers in [base + j width, base + (j + 1) width)."""

    base: int
    width: int

    def slices(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the parts of start..end-1 as (column, low, high), in order."""
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
