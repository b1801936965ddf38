"""Statistics of blocks on CPUs with AVX-512: eight residue classes at once, with four steps per lookup in registers."""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.bits import ones
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
from jobs.kinds.collatz.statistics_tails_portable import wide_limit
from jobs.kinds.collatz.tables import D_SHIFT, LOW_BITS, STEP_BITS, WEIGHT_SHIFT, Groups, Lookup
from jobs.kinds.collatz.vector_steps import eight_wide, sixteen_narrow, tables
from jobs.kinds.collatz.vectors import (
    add,
    below,
    both,
    choose,
    down,
    either,
    iota,
    load,
    mul,
    pick,
    same,
    splat,
    squeeze,
    store,
    sub,
    up,
)
from jobs.kinds.collatz.wide import LIMB, SAFE

#: Exclusive upper bound of the numbers that this module supports; all valid numbers are below it.
END = 2**96
#: Whether this module supports blocks of 2^24 large numbers; no, because 3^c times a digit would exceed 2^64.
ANY_LEVEL = False

_ZERO, _ALL, _EIGHT, _FIFTEEN = np.uint64(0), np.uint64(2**64 - 1), np.uint64(8), np.uint64(15)
_CLASS_C, _CLASS_D = np.uint64(2**D_SHIFT - 1), np.uint64(2 ** (WEIGHT_SHIFT - D_SHIFT) - 1)
_D_SHIFT, _LOW = np.uint64(D_SHIFT), np.uint64(2**LOW_BITS)
_TO_TAG, _TAG_MASK = np.uint64(WEIGHT_SHIFT - TAG_WEIGHT), np.uint64(2**64 - 2**TAG_WEIGHT)
_LIMB_MASK = np.uint64(2**LIMB - 1)
_DIGIT, _DIGIT_MASK = np.uint64(27), np.uint64(2**27 - 1)
#: Exclusive upper bound of the high word; 16 steps, eight at a time, then keep the high word below 2^64.
_HIGH = np.uint64(2**46)


@njit(nogil=True, cache=True)
def _power_and_d(entry, powers):
    """Return 3^c and d of eight packed residue classes; `powers` contains 3^0..3^31 in four registers."""
    c = both(entry, splat(_CLASS_C))
    great = below(splat(_FIFTEEN), c)
    power = choose(great, pick(powers[2], c, powers[3]), pick(powers[0], c, powers[1]))
    return power, both(down(entry, splat(_D_SHIFT)), splat(_CLASS_D))


@njit(nogil=True, cache=True)
def _tag(entry, index):
    return either(both(down(entry, splat(_TO_TAG)), splat(_TAG_MASK)), index)


@njit(nogil=True, cache=True)
def narrow(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, log: float, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Process a block like `statistics_tails_portable.narrow`, but eight residue classes at once."""
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
    four, powers, ends = tables(lookup.four), tables(lookup.powers), lookup.ends
    low, live, end, ended = tile.low, tile.live, tile.end, tile.ended
    lowest, span, factor, count = splat(_LOW), splat(limit - _LOW), splat(h), len(packed)
    most, odd, alive, taken, lanes, step = np.int64(0), False, count, bits, iota(), splat(_EIGHT)
    while alive:
        left, over, at, all_lanes = np.int64(0), np.int64(0), lanes, splat(np.uint64(alive))
        for j in range(0, alive, 8):
            if taken == bits:
                entry = load(packed, j)
                power, d = _power_and_d(entry, powers)
                x, tag = add(mul(power, factor), d), _tag(entry, at)
            else:
                x, tag = sixteen_narrow(load(low, j), four), load(live, j)
            valid = below(at, all_lanes)
            leaves = below(span, sub(x, lowest)) & valid if taken <= LONG else valid
            stays = valid ^ leaves
            store(low, left, squeeze(stays, x))
            store(live, left, squeeze(stays, tag))
            store(end, over, squeeze(leaves, x))
            store(ended, over, squeeze(leaves, tag))
            left += np.int64(ones(stays))
            over += np.int64(ones(leaves))
            at = add(at, step)
        offset, alive = odd_steps_offset(taken, log), left
        greatest, odd_ones = end_lanes(FIRST, over, taken, offset, ends, histogram, placed, tile)
        most, odd = max(most, greatest), odd | odd_ones
        taken += STEP_BITS
    return most, odd


@njit(nogil=True, cache=True)
def wide(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, log: float, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Process a block like `statistics_tails_portable.wide`, but eight residue classes at once."""
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
def _times(power, d, h):
    """Return 3^c h + d of eight residue classes as two words each, the low word first.

    See `statistics_tails_portable.times`.
    """
    digit, mask = splat(_DIGIT), splat(_DIGIT_MASK)
    first = add(mul(power, h[0]), d)
    second = add(mul(power, h[1]), down(first, digit))
    third = add(mul(power, h[2]), down(second, digit))
    fourth = add(mul(power, h[3]), down(third, digit))
    low = either(both(first, mask), up(both(second, mask), digit))
    return low, either(both(third, mask), up(fourth, digit))


@njit(nogil=True, cache=True)
def _wide_tails(
    h, bits: int, packed, lookup: Lookup, limit, log: float, histogram, placed: bool, tile: Tile
) -> tuple[np.int64, bool]:
    """Compute the classes of a tile like `_narrow_tails`, but with two words per number."""
    four, powers, ends = tables(lookup.four), tables(lookup.powers), lookup.ends
    lows, highs, live, end, ended = tile.low, tile.high, tile.live, tile.end, tile.ended
    lowest, nothing, everything = splat(_LOW), splat(_ZERO), splat(_ALL)
    digits = splat(h[0]), splat(h[1]), splat(h[2]), splat(h[3])
    limit_high, limit_low = splat(limit[0]), splat(limit[1])
    most, odd, alive, taken, lanes, step = np.int64(0), False, len(packed), bits, iota(), splat(_EIGHT)
    while alive:
        left, over, at, all_lanes = np.int64(0), np.int64(0), lanes, splat(np.uint64(alive))
        for j in range(0, alive, 8):
            if taken == bits:
                entry = load(packed, j)
                power, d = _power_and_d(entry, powers)
                low, high = _times(power, d, digits)
                tag = _tag(entry, at)
            else:
                low, high = eight_wide(load(lows, j), load(highs, j), four)
                low, high = eight_wide(low, high, four)
                tag = load(live, j)
            valid, one_limb = below(at, all_lanes), same(high, nothing)
            leaves = (one_limb & below(low, lowest)) | below(limit_high, high)
            leaves = (leaves | (same(high, limit_high) & below(limit_low, low))) & valid if taken <= LONG else valid
            stays = valid ^ leaves
            store(lows, left, squeeze(stays, low))
            store(highs, left, squeeze(stays, high))
            store(live, left, squeeze(stays, tag))
            store(end, over, squeeze(leaves, choose(one_limb, low, everything)))
            store(ended, over, squeeze(leaves, tag))
            left += np.int64(ones(stays))
            over += np.int64(ones(leaves))
            at = add(at, step)
        offset, alive = odd_steps_offset(taken, log), left
        greatest, odd_ones = end_lanes(FIRST, over, taken, offset, ends, histogram, placed, tile)
        most, odd = max(most, greatest), odd | odd_ones
        taken += STEP_BITS
    return most, odd


@njit(nogil=True, cache=True)
def narrow_rare(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, floors, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Find the records of a block like `statistics_tails_portable.narrow_rare`, but eight residue classes at once."""
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        high, low = reach(notes, walked)
        _narrow_rare_tails(h[0], bits, packed, lookup, min(SAFE, SAFE if high else low), floors[1], tile)
        failure = settle(start, packed, first, lookup, walked, tile, notes)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def _narrow_rare_tails(h: np.uint64, bits: int, packed, lookup: Lookup, limit: np.uint64, floors, tile: Tile) -> None:
    four, powers = tables(lookup.four), tables(lookup.powers)
    low, live, ended = tile.low, tile.live, tile.ended
    most, factor, lanes, step, alive, over = splat(limit), splat(h), iota(), splat(_EIGHT), len(packed), np.int64(0)
    for taken in range(len(floors)):
        left, at, all_lanes, floor = np.int64(0), lanes, splat(np.uint64(alive)), splat(floors[taken])
        for j in range(0, alive, 8):
            if taken == 0:
                power, d = _power_and_d(load(packed, j), powers)
                x, index = add(mul(power, factor), d), at
            else:
                x, index = sixteen_narrow(load(low, j), four), load(live, j)
            valid, great = below(at, all_lanes), below(most, x)
            stays = below(floor, x) & valid & ~great
            store(low, left, squeeze(stays, x))
            store(live, left, squeeze(stays, index))
            left += np.int64(ones(stays))
            if great & valid:
                store(ended, over, squeeze(great & valid, index))
                over += np.int64(ones(great & valid))
            at = add(at, step)
        alive = left
    mark(alive, over, tile)


@njit(nogil=True, cache=True)
def wide_rare(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, floors, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Find the records of a block like `statistics_tails_portable.wide_rare`, but eight residue classes at once."""
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        _wide_rare_tails(h, bits, packed, lookup, wide_limit(notes, walked, _HIGH), floors, tile)
        failure = settle(start, packed, first, lookup, walked, tile, notes)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def _wide_rare_tails(h, bits: int, packed, lookup: Lookup, limit, floors, tile: Tile) -> None:
    four, powers = tables(lookup.four), tables(lookup.powers)
    lows, highs, live, ended = tile.low, tile.high, tile.live, tile.ended
    digits = splat(h[0]), splat(h[1]), splat(h[2]), splat(h[3])
    limit_high, limit_low = splat(limit[0]), splat(limit[1])
    lanes, step, alive, over = iota(), splat(_EIGHT), len(packed), np.int64(0)
    for taken in range(floors.shape[1]):
        left, at, all_lanes = np.int64(0), lanes, splat(np.uint64(alive))
        floor_high, floor_low = splat(floors[0, taken]), splat(floors[1, taken])
        for j in range(0, alive, 8):
            if taken == 0:
                power, d = _power_and_d(load(packed, j), powers)
                low, high = _times(power, d, digits)
                index = at
            else:
                low, high = eight_wide(load(lows, j), load(highs, j), four)
                low, high = eight_wide(low, high, four)
                index = load(live, j)
            great = below(limit_high, high) | (same(high, limit_high) & below(limit_low, low))
            great &= below(at, all_lanes)
            stays = below(floor_high, high) | (same(high, floor_high) & below(floor_low, low))
            stays &= below(at, all_lanes) & ~great
            store(lows, left, squeeze(stays, low))
            store(highs, left, squeeze(stays, high))
            store(live, left, squeeze(stays, index))
            left += np.int64(ones(stays))
            if great:
                store(ended, over, squeeze(great, index))
                over += np.int64(ones(great))
            at = add(at, step)
        alive = left
    mark(alive, over, tile)
