"""Shortcut steps of four numbers at once, eight by a lookup in a table that the first-level cache holds.

With p = 3^c and d of a residue modulo 2^8, eight steps lead from x to p (x >> 8) + d; both are below 3^8.
"""

# mypy: ignore-errors
# numba types these functions, by rules that mypy does not know: int and int64 are one type

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.quads import add, both, down, load, lookup, lookup_at, product, splat, store, up
from jobs.kinds.collatz.wide import LIMB

#: A smaller high limb stays a half in eight steps and below 2^37 in sixteen.
HIGH_BITS = 27

_ZERO, _EIGHT, _HALF, _FORTY = np.uint64(0), np.uint64(8), np.uint64(32), np.uint64(40)
_LIMB, _LIMB_MASK, _PART = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(LIMB - 8)


@njit(nogil=True, cache=True)
def eight(x, entry):
    """x < 2^59; entry is p + (d << 32) of its residue."""
    more = up(product(down(x, splat(_FORTY)), entry), splat(_HALF))
    return add(add(product(down(x, splat(_EIGHT)), entry), more), down(entry, splat(_HALF)))


@njit(nogil=True, cache=True)
def sixteen_narrow(x, entry, table):
    """x <= 2^54; entry as for `eight`, of the first of two lookups."""
    x = eight(x, entry)
    return eight(x, lookup(table, x))


@njit(nogil=True, cache=True)
def eight_wide(low, high, entry):
    """`eight` of two limbs; what the low one carries stays there, and is less than 2^64 after `eight_wide` twice."""
    high = product(high, entry)
    return add(eight(low, entry), both(up(high, splat(_PART)), splat(_LIMB_MASK))), down(high, splat(_EIGHT))


@njit(nogil=True, cache=True)
def carried(low, high):
    """Limbs whose low one has LIMB bits."""
    return both(low, splat(_LIMB_MASK)), add(high, down(low, splat(_LIMB)))


@njit(nogil=True, cache=True)
def narrow_half(count: int, table, numbers) -> None:
    """Eight of sixteen steps of the first `count` numbers, in a pass of their own.

    The next pass then looks up what was stored long ago. Stored just before, it would come so late that the CPU had no
    room to begin further lanes meanwhile. Lanes beyond the last are made zero, which stays zero.
    """
    store(numbers, count, splat(_ZERO))
    for j in range(0, count, 4):
        store(numbers, j, eight(load(numbers, j), lookup_at(table, numbers, j)))


@njit(nogil=True, cache=True)
def wide_half(count: int, table, lows, highs) -> None:
    """`narrow_half` in two limbs, of which the low one may carry more than LIMB bits then."""
    store(lows, count, splat(_ZERO))
    store(highs, count, splat(_ZERO))
    for j in range(0, count, 4):
        low, high = eight_wide(load(lows, j), load(highs, j), lookup_at(table, lows, j))
        store(lows, j, low)
        store(highs, j, high)
