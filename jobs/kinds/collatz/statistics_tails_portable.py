"""Statistics of blocks on any CPU: one residue class after the other, with 16 steps per table lookup.

No branch depends on the value of a class.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.statistics_blocks import (
    AGAIN,
    FIRST,
    LONG,
    TAG_WEIGHT,
    TILE,
    Notes,
    Tile,
    end_lanes,
    mark,
    odd_steps_offset,
    reach,
    record_of,
    settle,
)
from jobs.kinds.collatz.tables import C_SHIFT, D_SHIFT, LOW_BITS, STEP_BITS, WEIGHT_SHIFT, Groups, Lookup
from jobs.kinds.collatz.wide import LIMB, SAFE, in_limbs

#: Exclusive upper bound of the numbers that this module supports; all valid numbers are below it.
END = 2**96
#: Whether this module supports blocks of 2^24 large numbers; no, because 3^c times a digit would exceed 2^64.
ANY_LEVEL = False

_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
_STEP, _STEP_MASK = np.uint64(STEP_BITS), np.uint64(2**STEP_BITS - 1)
_C_SHIFT, _D_MASK = np.uint64(C_SHIFT), np.uint64(2**C_SHIFT - 1)
_CLASS_C, _CLASS_D = np.uint64(2**D_SHIFT - 1), np.uint64(2 ** (WEIGHT_SHIFT - D_SHIFT) - 1)
_D_SHIFT, _LOW = np.uint64(D_SHIFT), np.uint64(2**LOW_BITS)
_TO_TAG, _TAG_MASK = np.uint64(WEIGHT_SHIFT - TAG_WEIGHT), np.uint64(2**64 - 2**TAG_WEIGHT)
_LIMB, _LIMB_MASK, _PART = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(LIMB - STEP_BITS)
_DIGIT, _DIGIT_MASK = np.uint64(27), np.uint64(2**27 - 1)
#: Exclusive upper bound of the high word; 16 steps then keep the high word below 2^64.
_HIGH = np.uint64(2**38)


@njit(nogil=True, cache=True)
def narrow(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, log: float, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Count the delays and find the records of a block of 2^bits numbers below 2^44, with one word per number.

    The block has the number h >= 8 and starts at place `start`; `log` is log3 of its first number. If `walked` is
    False, the maximum recorded peak must be at least LOW_PEAK and 2 * 3^bits * (h + 1), which bounds the values of the
    first `bits` steps. If it is True, the block's path records are already recorded.
    """
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        high, low = reach(notes, walked)
        limit = min(SAFE, SAFE if high else low)
        for placed in AGAIN:
            most, odd = _narrow_tails(h[0], bits, packed, lookup, limit, log, notes.histogram, placed, tile)
            if most <= record_of(notes):
                break
        if most <= record_of(notes) and not odd:
            continue
        failure = settle(start, packed, first, lookup, walked, tile, notes)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def _narrow_tails(
    h: np.uint64, bits: int, packed, lookup: Lookup, limit: np.uint64, log: float, histogram, placed: bool, tile: Tile
) -> tuple[np.int64, bool]:
    """Compute every class of a tile until its delay is known or the class is marked for computation step by step.

    Return (maximum delay, whether any class is marked ODD_ONE).
    """
    steps, powers, ends = lookup.steps, lookup.powers, lookup.ends
    low, live, end, ended = tile.low, tile.live, tile.end, tile.ended
    alive, over, span = np.int64(0), np.int64(0), limit - _LOW
    for i in range(len(packed)):
        entry = packed[i]
        x = powers[entry & _CLASS_C] * h + ((entry >> _D_SHIFT) & _CLASS_D)
        tag = (entry >> _TO_TAG) & _TAG_MASK | np.uint64(i)
        low[alive], live[alive], end[over], ended[over] = x, tag, x, tag
        goes_on = x - _LOW <= span
        alive += goes_on
        over += not goes_on
    taken = bits
    most, odd = end_lanes(FIRST, over, taken, odd_steps_offset(taken, log), ends, histogram, placed, tile)
    while alive:
        left, over, taken = np.int64(0), np.int64(0), taken + STEP_BITS
        for j in range(alive):
            x, tag = low[j], live[j]
            entry = np.uint64(steps[x & _STEP_MASK])
            x = (x >> _STEP) * powers[entry >> _C_SHIFT] + (entry & _D_MASK)
            low[left], live[left], end[over], ended[over] = x, tag, x, tag
            goes_on = (x - _LOW <= span) & (taken <= LONG)
            left += goes_on
            over += not goes_on
        offset, alive = odd_steps_offset(taken, log), left
        greatest, odd_ones = end_lanes(FIRST, over, taken, offset, ends, histogram, placed, tile)
        most, odd = max(most, greatest), odd | odd_ones
    return most, odd


@njit(nogil=True, cache=True)
def wide(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, log: float, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Count the delays and find the records of any block, with two words per number.

    The arguments are the same as for `narrow`, but h consists of digits of 27 bits, the lowest first.
    """
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        limit = wide_limit(notes, walked, _HIGH)
        for placed in AGAIN:
            most, odd = _wide_tails(h, bits, packed, lookup, limit, log, notes.histogram, placed, tile)
            if most <= record_of(notes):
                break
        if most <= record_of(notes) and not odd:
            continue
        failure = settle(start, packed, first, lookup, walked, tile, notes)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def wide_limit(notes: Notes, walked: bool, most: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the largest value that cannot lead to a peak record, as words (high, low) with high < `most`."""
    high, low = reach(notes, walked)
    if high >> _LIMB:
        return most - _ONE, _LIMB_MASK
    high, low = in_limbs(high, low)
    return (high, low) if high < most else (most - _ONE, _LIMB_MASK)


@njit(nogil=True, cache=True)
def times(power: np.uint64, d: np.uint64, h) -> tuple[np.uint64, np.uint64]:
    """Return 3^c h + d as two words (high, low), of which the low word has LIMB bits.

    h < 2^108 has digits of 27 bits, and 3^c < 2^36, so no product exceeds 2^64.
    """
    first = power * h[0] + d
    second = power * h[1] + (first >> _DIGIT)
    third = power * h[2] + (second >> _DIGIT)
    fourth = power * h[3] + (third >> _DIGIT)
    low = (first & _DIGIT_MASK) | ((second & _DIGIT_MASK) << _DIGIT)
    return (third & _DIGIT_MASK) | (fourth << _DIGIT), low


@njit(nogil=True, cache=True)
def _wide_tails(
    h, bits: int, packed, lookup: Lookup, limit, log: float, histogram, placed: bool, tile: Tile
) -> tuple[np.int64, bool]:
    steps, powers, ends = lookup.steps, lookup.powers, lookup.ends
    lows, highs, live, end, ended = tile.low, tile.high, tile.live, tile.end, tile.ended
    for i in range(len(packed)):
        entry = packed[i]
        highs[i], lows[i] = times(powers[entry & _CLASS_C], (entry >> _D_SHIFT) & _CLASS_D, h)
        live[i] = (entry >> _TO_TAG) & _TAG_MASK | np.uint64(i)
    most, odd, alive, taken = np.int64(0), False, len(packed), bits
    while alive:
        left, over = np.int64(0), np.int64(0)
        for j in range(alive):
            low, high, tag = lows[j], highs[j], live[j]
            x = low if not high else _ALL
            lows[left], highs[left], live[left], end[over], ended[over] = low, high, tag, x, tag
            fits = (high < limit[0]) | ((high == limit[0]) & (low <= limit[1]))
            goes_on = (x >= _LOW) & fits & (taken <= LONG)
            left += goes_on
            over += not goes_on
        offset, alive = odd_steps_offset(taken, log), left
        greatest, odd_ones = end_lanes(FIRST, over, taken, offset, ends, histogram, placed, tile)
        most, odd = max(most, greatest), odd | odd_ones
        taken += STEP_BITS
        for j in range(alive):
            low, high = lows[j], highs[j]
            entry = np.uint64(steps[low & _STEP_MASK])
            power = powers[entry >> _C_SHIFT]
            high *= power
            low = (low >> _STEP) * power + (entry & _D_MASK) + ((high << _PART) & _LIMB_MASK)
            lows[j], highs[j] = low & _LIMB_MASK, (high >> _STEP) + (low >> _LIMB)
    return most, odd


@njit(nogil=True, cache=True)
def narrow_rare(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, floors, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Find the records of a block of numbers below 2^44 without counting delays.

    The block's classes are `groups`. `floors` has two rows of limbs (high, low). A class is dropped once it is not
    above floor j after bits + 16 j steps, because it cannot contain a record then. Classes that remain after the last
    floor are walked exactly.
    """
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        high, low = reach(notes, walked)
        _narrow_rare_tails(h[0], packed, lookup, min(SAFE, SAFE if high else low), floors[1], tile)
        failure = settle(start, packed, first, lookup, walked, tile, notes)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def _narrow_rare_tails(h: np.uint64, packed, lookup: Lookup, limit: np.uint64, floors, tile: Tile) -> None:
    steps, powers, low, live, ended = lookup.steps, lookup.powers, tile.low, tile.live, tile.ended
    for i in range(len(packed)):
        entry = packed[i]
        low[i], live[i] = powers[entry & _CLASS_C] * h + ((entry >> _D_SHIFT) & _CLASS_D), i
    alive, over = len(packed), np.int64(0)
    for taken in range(len(floors)):
        left, floor = np.int64(0), floors[taken]
        for j in range(alive):
            x, i = low[j], live[j]
            if taken:
                entry = np.uint64(steps[x & _STEP_MASK])
                x = (x >> _STEP) * powers[entry >> _C_SHIFT] + (entry & _D_MASK)
            low[left], live[left], ended[over] = x, i, i
            left += (x > floor) & (x <= limit)
            over += x > limit
        alive = left
    mark(alive, over, tile)


@njit(nogil=True, cache=True)
def wide_rare(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, floors, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Find the records of any block without counting delays, with two words per number."""
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        _wide_rare_tails(h, packed, lookup, wide_limit(notes, walked, _HIGH), floors, tile)
        failure = settle(start, packed, first, lookup, walked, tile, notes)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def _wide_rare_tails(h, packed, lookup: Lookup, limit, floors, tile: Tile) -> None:
    steps, powers, lows, highs, live, ended = lookup.steps, lookup.powers, tile.low, tile.high, tile.live, tile.ended
    for i in range(len(packed)):
        entry = packed[i]
        highs[i], lows[i] = times(powers[entry & _CLASS_C], (entry >> _D_SHIFT) & _CLASS_D, h)
        live[i] = i
    alive, over = len(packed), np.int64(0)
    for taken in range(floors.shape[1]):
        left, floor_high, floor_low = np.int64(0), floors[0, taken], floors[1, taken]
        for j in range(alive):
            low, high, i = lows[j], highs[j], live[j]
            if taken:
                entry = np.uint64(steps[low & _STEP_MASK])
                power = powers[entry >> _C_SHIFT]
                high *= power
                low = (low >> _STEP) * power + (entry & _D_MASK) + ((high << _PART) & _LIMB_MASK)
                low, high = low & _LIMB_MASK, (high >> _STEP) + (low >> _LIMB)
            great = (high > limit[0]) | ((high == limit[0]) & (low > limit[1]))
            lows[left], highs[left], live[left], ended[over] = low, high, i, i
            left += ((high > floor_high) | ((high == floor_high) & (low > floor_low))) & (not great)
            over += great
        alive = left
    mark(alive, over, tile)
