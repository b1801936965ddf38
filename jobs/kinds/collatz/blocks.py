"""Statistics of whole blocks of 2^k numbers, one tail per residue class, and of single numbers.

Why this is exact is told in the README of this folder. In short: block h covers n = 2^k h + r for all r < 2^k. After k
shortcut steps n has become 3^c h + d, the same number for all r of a class, so delays need one tail a class. Classes
come in the order of their least residue, so what exceeds all before it is a record at that residue.
"""

# mypy: ignore-errors
# numba types these functions, by rules that mypy does not know: int and int64 are one type

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from jobs.kinds.collatz.tables import C_SHIFT, D_SHIFT, LOW_BITS, STEP_BITS, WEIGHT_SHIFT, Groups, Lookup
from jobs.kinds.collatz.wide import SAFE, descend, exceeds, walk

#: What a call answers when something does not fit; 0 is well.
TOO_WIDE, TOO_LONG, TOO_MANY_RECORDS = 1, 2, 3
#: Length of the histogram and of the lists of records. No delay or list below 2^53 comes near.
DELAYS = 4096
#: Classes whose state is in the first-level cache at a time.
TILE = 2048
#: From a boundary value x no value of the next 16 steps exceeds 2 * 1.5^16 * (x + 1) < 2^11 (x + 1).
GROWTH_BITS = 11

_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
_STEP, _STEP_MASK = np.uint64(STEP_BITS), np.uint64(2**STEP_BITS - 1)
_C_SHIFT, _D_MASK = np.uint64(C_SHIFT), np.uint64(2**C_SHIFT - 1)
_CLASS_C, _CLASS_D = np.uint64(2**D_SHIFT - 1), np.uint64(2 ** (WEIGHT_SHIFT - D_SHIFT) - 1)
_D_SHIFT, _WEIGHT_SHIFT = np.uint64(D_SHIFT), np.uint64(WEIGHT_SHIFT)
_LOW = np.uint64(2**LOW_BITS)
_GROWTH, _GROWTH_UP = np.uint64(GROWTH_BITS), np.uint64(64 - GROWTH_BITS)


# Functions take the arrays out of these tuples before a loop: inside one, numba would count references each time.


class Found(NamedTuple):
    """What is found in a lease whose numbers are taken in ascending order."""

    #: Numbers by delay.
    histogram: Any
    #: Rows (n, delay) and (n, high limb of the peak, low limb) of the records so far.
    by_delay: Any
    by_path: Any
    #: Lengths of the two.
    sizes: Any


class Lanes(NamedTuple):
    """The classes of a tile on their way down."""

    x: Any
    #: Steps taken so far.
    steps: Any
    #: Indices of the lanes that go on.
    live: Any


def nothing_found() -> Found:
    return Found(
        histogram=np.zeros(DELAYS, np.uint64),
        by_delay=np.zeros((DELAYS, 2), np.uint64),
        by_path=np.zeros((DELAYS, 3), np.uint64),
        sizes=np.zeros(2, np.int64),
    )


@njit(nogil=True, cache=True)
def _note_delay(n: np.uint64, delay: int, found: Found) -> int:
    """Appends a delay record if this is one; numbers come ascending."""
    size = found.sizes[0]
    if size == 0 or delay > found.by_delay[size - 1, 1]:
        if size == DELAYS:
            return TOO_MANY_RECORDS
        found.by_delay[size, 0], found.by_delay[size, 1] = n, delay
        found.sizes[0] = size + 1
    return 0


@njit(nogil=True, cache=True)
def _note_path(n: np.uint64, high: np.uint64, low: np.uint64, found: Found) -> int:
    """Appends a path record if this is one; numbers come ascending, except those that cannot be records."""
    size, rows = found.sizes[1], found.by_path
    if size == 0 or exceeds(high, low, rows[size - 1, 1], rows[size - 1, 2]):
        if size == DELAYS:
            return TOO_MANY_RECORDS
        rows[size, 0], rows[size, 1], rows[size, 2] = n, high, low
        found.sizes[1] = size + 1
    return 0


@njit(nogil=True, cache=True)
def singles(start: np.uint64, end: np.uint64, found: Found) -> int:
    """Numbers start..end-1 one after the other, every step of each."""
    n = start
    while n < end:
        delay, high, low = walk(_ZERO, n)
        if delay < 0:
            return TOO_WIDE
        if delay >= DELAYS:
            return TOO_LONG
        found.histogram[delay] += _ONE
        failure = max(_note_delay(n, delay, found), _note_path(n, high, low, found))
        if failure:
            return failure
        n += _ONE
    return 0


@njit(nogil=True, cache=True)
def _walk_for_peak(n: np.uint64, found: Found) -> int:
    """Notes the exact peak of n if it is a record."""
    delay, high, low = walk(_ZERO, n)
    return TOO_WIDE if delay < 0 else _note_path(n, high, low, found)


@njit(nogil=True, cache=True)
def climb(start: np.uint64, end: np.uint64, high: np.uint64, low: np.uint64, found: Found) -> tuple[int, np.uint64]:
    """Notes path records from start on until one reaches (high, low): (failure, first number not looked at)."""
    n = start
    while n < end:
        size = found.sizes[1]
        if size and not exceeds(high, low, found.by_path[size - 1, 1], found.by_path[size - 1, 2]):
            break
        failure = _walk_for_peak(n, found)
        if failure:
            return failure, n
        n += _ONE
    return 0, n


@njit(nogil=True, cache=True)
def reach(found: Found, walked: bool) -> tuple[np.uint64, np.uint64]:
    """(high, low): from no boundary value up to it can the next 16 steps exceed the greatest peak so far."""
    if walked:
        return _ALL, _ALL
    last = found.sizes[1] - 1
    high, low = found.by_path[last, 1], found.by_path[last, 2]
    low = (low >> _GROWTH) | (high << _GROWTH_UP)
    high >>= _GROWTH
    return high - np.uint64(low == _ZERO), low - _ONE


@njit(nogil=True, cache=True)
def block(h: np.uint64, bits: int, groups: Groups, lookup: Lookup, walked: bool, found: Found) -> int:
    """The 2^bits numbers of block h >= 1.

    Unless `walked` says that the path records of the block are already noted, the greatest peak noted must be at
    least LOW_PEAK and 2 * 3^bits * (h + 1), which bounds what the first `bits` steps reach.
    """
    lanes = Lanes(np.empty(TILE, np.uint64), np.empty(TILE, np.uint32), np.empty(TILE, np.uint16))
    for start in range(0, len(groups.packed), TILE):
        tile = Groups(groups.packed[start : start + TILE], groups.first[start : start + TILE])
        high, low = reach(found, walked)
        limit = min(SAFE, SAFE if high else low)
        alive = _enter(h, bits, tile, lookup, limit, lanes)
        _go_down(alive, limit, lookup, lanes)
        failure = _settle(h << np.uint64(bits), tile, lookup, walked, lanes, found)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def _enter(h: np.uint64, bits: int, tile: Groups, lookup: Lookup, limit: np.uint64, lanes: Lanes) -> int:
    """Fills the lanes with 3^c h + d, or all ones where that would not fit; how many go on."""
    lane_x, lane_steps, live = lanes
    packed, powers, span = tile.packed, lookup.powers, limit - _LOW
    fits = np.empty(bits + 1, np.uint64)
    for c in range(bits + 1):
        fits[c] = _ALL // powers[c] - _ONE
    alive = 0
    for i in range(len(packed)):
        entry = packed[i]
        c = entry & _CLASS_C
        x = powers[c] * h + ((entry >> _D_SHIFT) & _CLASS_D)
        x = x if h <= fits[c] else _ALL
        lane_x[i] = x
        lane_steps[i] = np.uint32(bits) + np.uint32(c)
        live[alive] = i
        alive += x - _LOW <= span
    return alive


@njit(nogil=True, cache=True)
def _go_down(alive: int, limit: np.uint64, lookup: Lookup, lanes: Lanes) -> None:
    """Takes lanes 16 steps at a time until each is below the table's end or above the limit.

    No branch depends on a lane: the list of those that go on is written always and lengthened only if so.
    """
    lane_x, lane_steps, live = lanes
    steps, powers, span = lookup.steps, lookup.powers, limit - _LOW
    while alive:
        left = 0
        for j in range(alive):
            i = live[j]
            x = lane_x[i]
            entry = np.uint64(steps[x & _STEP_MASK])
            c = entry >> _C_SHIFT
            x = (x >> _STEP) * powers[c] + (entry & _D_MASK)
            lane_x[i] = x
            lane_steps[i] += np.uint32(_STEP + c)
            live[left] = i
            left += x - _LOW <= span
        alive = left


@njit(nogil=True, cache=True)
def _settle(base: np.uint64, tile: Groups, lookup: Lookup, walked: bool, lanes: Lanes, found: Found) -> int:
    """Counts every lane in the order of its least residue and notes the records."""
    lane_x, lane_steps, _ = lanes
    packed, first, delays = tile.packed, tile.first, lookup.delays
    histogram, by_delay, sizes = found.histogram, found.by_delay, found.sizes
    reach_high, reach_low = reach(found, walked)
    for i in range(len(packed)):
        x, n = lane_x[i], base + np.uint64(first[i])
        delay = np.int64(lane_steps[i])
        if x < _LOW:
            delay += delays[x]
        else:
            # the lane left the fast loop at x, or never entered it
            rest, high, low = descend(_ZERO, n if x == _ALL else x, lookup)
            if rest < 0:
                return TOO_WIDE
            delay = rest if x == _ALL else delay + rest
            if exceeds(high, low, reach_high, reach_low):
                failure = _walk_for_peak(n, found)
                if failure:
                    return failure
                reach_high, reach_low = reach(found, walked)
        if delay >= DELAYS:
            return TOO_LONG
        histogram[delay] += packed[i] >> _WEIGHT_SHIFT
        # asked here as well, since a call that takes arrays costs more than all of the above
        if (sizes[0] == 0 or delay > by_delay[sizes[0] - 1, 1]) and _note_delay(n, delay, found):
            return TOO_MANY_RECORDS
    return 0
