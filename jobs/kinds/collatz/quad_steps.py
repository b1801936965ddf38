"""Performs steps n/2 or (3n+1)/2 on four numbers at once. One table lookup performs eight steps.

Eight steps map x to p (x >> 8) + d, where p = 3^c and d depend on x modulo 2^8; both are below 3^8. The table fits in
the first-level cache.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.quads import add, both, down, load, lookup, lookup_at, product, splat, store, up
from jobs.kinds.collatz.wide import LIMB

#: Maximum size of a number's high word in bits; it has at most 32 bits after eight steps, and 37 after sixteen.
HIGH_BITS = 27

_ZERO, _EIGHT, _HALF, _FORTY = np.uint64(0), np.uint64(8), np.uint64(32), np.uint64(40)
_LIMB, _LIMB_MASK, _PART = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(LIMB - 8)


@njit(nogil=True, cache=True)
def eight(x, entry):
    """Perform eight shortcut steps on four numbers x < 2^59. `entry` is the table entry of x modulo 2^8.

    An entry is p + (d << 32).
    """
    more = up(product(down(x, splat(_FORTY)), entry), splat(_HALF))
    return add(add(product(down(x, splat(_EIGHT)), entry), more), down(entry, splat(_HALF)))


@njit(nogil=True, cache=True)
def sixteen_narrow(x, entry, table):
    """Perform sixteen shortcut steps on four numbers x <= 2^54. `entry` is the table entry of the first eight steps."""
    x = eight(x, entry)
    return eight(x, lookup(table, x))


@njit(nogil=True, cache=True)
def eight_wide(low, high, entry):
    """Perform eight shortcut steps on four numbers of two words each.

    The low word keeps its carry, and stays below 2^64 for two such calls.
    """
    high = product(high, entry)
    return add(eight(low, entry), both(up(high, splat(_PART)), splat(_LIMB_MASK))), down(high, splat(_EIGHT))


@njit(nogil=True, cache=True)
def carried(low, high):
    """Add the carry of each low word to its high word, so that the low word has LIMB bits."""
    return both(low, splat(_LIMB_MASK)), add(high, down(low, splat(_LIMB)))


@njit(nogil=True, cache=True)
def narrow_half(count: int, table, numbers) -> None:
    """Perform the first eight of sixteen shortcut steps on `count` numbers in a separate pass.

    The next pass then loads values that were stored long before. Loading a value right after its store would stall the
    CPU, so that it could not start further lanes. Lanes after the last number are set to zero, which stays zero.
    """
    store(numbers, count, splat(_ZERO))
    for j in range(0, count, 4):
        store(numbers, j, eight(load(numbers, j), lookup_at(table, numbers, j)))


@njit(nogil=True, cache=True)
def wide_half(count: int, table, lows, highs) -> None:
    """Perform the first eight of sixteen shortcut steps on `count` numbers of two words in a separate pass.

    The low word can then have more than LIMB bits.
    """
    store(lows, count, splat(_ZERO))
    store(highs, count, splat(_ZERO))
    for j in range(0, count, 4):
        low, high = eight_wide(load(lows, j), load(highs, j), lookup_at(table, lows, j))
        store(lows, j, low)
        store(highs, j, high)
