"""The tails of a block's classes on CPUs with AVX2: four lanes at once, eight steps by a lookup."""

# mypy: ignore-errors
# numba types these functions, by rules that mypy does not know: int and int64 are one type

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.bits import ones
from jobs.kinds.collatz.quad_steps import HIGH_BITS, sixteen_narrow, sixteen_wide
from jobs.kinds.collatz.quads import (
    add,
    below,
    below_signed,
    bits,
    both,
    choose,
    down,
    either,
    load,
    lookup,
    lookup_at,
    same,
    splat,
    squeeze,
    store,
)
from jobs.kinds.collatz.statistics_blocks import (
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
from jobs.kinds.collatz.wide import LIMB, SAFE

#: Greater numbers are left to the tails for any CPU: too many would outgrow these limbs.
END = 2**72
#: Blocks of two limbs may have any size: 3^c h comes from additions.
ANY_LEVEL = True

_ZERO, _ALL, _THREE, _FOUR = np.uint64(0), np.uint64(2**64 - 1), np.uint64(3), np.uint64(4)
_LANES = np.uint64(15)
_CLASS_C, _CLASS_D = np.uint64(2**D_SHIFT - 1), np.uint64(2 ** (WEIGHT_SHIFT - D_SHIFT) - 1)
_D_SHIFT, _LOW = np.uint64(D_SHIFT), np.uint64(2**LOW_BITS)
_TO_TAG, _TAG_MASK = np.uint64(WEIGHT_SHIFT - TAG_WEIGHT), np.uint64(2**64 - 2**TAG_WEIGHT)
_LIMB, _LIMB_MASK = np.uint64(LIMB), np.uint64(2**LIMB - 1)
_DIGIT, _TWO_DIGITS = np.uint64(27), np.uint64(54)
_HIGH = np.uint64(2**HIGH_BITS)


@njit(nogil=True, cache=True)
def _fill_products(h, tile: Tile) -> None:
    """3^c h for c = 0..31, in limbs of 54 and 64 bits; h comes in digits of 27 bits, or as one word."""
    low, high = h[0], _ZERO
    if len(h) > 1:
        low, high = h[0] | h[1] << _DIGIT, h[2] | h[3] << _DIGIT
    products = tile.products
    for c in range(32):
        products[c], products[32 + c] = low, high
        low, high = low * _THREE, high * _THREE
        if len(h) > 1:
            low, high = low & _LIMB_MASK, high + (low >> _LIMB)


@njit(nogil=True, cache=True)
def _d(entry):
    return both(down(entry, splat(_D_SHIFT)), splat(_CLASS_D))


@njit(nogil=True, cache=True)
def _tag(entry, index):
    return either(both(down(entry, splat(_TO_TAG)), splat(_TAG_MASK)), index)


@njit(nogil=True, cache=True)
def _valid(alive: int, j: int) -> np.uint64:
    """Bits of the lanes of the vector at j that hold one of `alive` classes."""
    return _LANES >> np.uint64(max(0, j + 4 - alive))


@njit(nogil=True, cache=True)
def narrow(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, log: float, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Twin of `statistics_tails_portable.narrow` for four lanes."""
    _fill_products(h, tile)
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        high, low = reach(notes, walked)
        limit = min(SAFE, SAFE if high else low)
        most, odd = _narrow_tails(bits, packed, lookup, limit, log, notes.histogram, False, tile)
        if most > record_of(notes):
            _narrow_tails(bits, packed, lookup, limit, log, notes.histogram, True, tile)
        elif not odd:
            continue
        failure = settle(start, packed, first, lookup, walked, tile, notes)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def _narrow_tails(
    steps: int, packed, tables: Lookup, limit: np.uint64, log: float, histogram, placed: bool, tile: Tile
) -> tuple[np.int64, bool]:
    """Takes every class of a tile to its end; as `end_lanes`."""
    eight, ends, squeezes, products = tables.eight, tables.ends, tile.orders.squeezes, tile.products
    low, live, end, ended = tile.low, tile.live, tile.end, tile.ended
    lowest, greatest_one = splat(_LOW), splat(limit)
    most, odd, alive, taken, lanes, step = (
        np.int64(0),
        False,
        len(packed),
        steps,
        load(tile.orders.lanes, 0),
        splat(_FOUR),
    )
    while alive:
        left, over, at, all_leave = _ZERO, _ZERO, lanes, _ZERO if taken <= LONG else _LANES
        for j in range(0, alive, 4):
            if taken == steps:
                entry = load(packed, j)
                x, tag = add(lookup(products, both(entry, splat(_CLASS_C))), _d(entry)), _tag(entry, at)
                at = add(at, step)
            else:
                x, tag = sixteen_narrow(load(low, j), lookup_at(eight, low, j), eight), load(live, j)
            valid = _valid(alive, j)
            # a number from 2^63 on is negative here, and leaves as well
            leaves = (bits(either(below_signed(x, lowest), below_signed(greatest_one, x))) | all_leave) & valid
            stays = leaves ^ valid
            left_x, left_tag = squeeze(squeezes, stays, x), squeeze(squeezes, stays, tag)
            over_x, over_tag = squeeze(squeezes, leaves, x), squeeze(squeezes, leaves, tag)
            store(low, left, left_x)
            store(live, left, left_tag)
            store(end, over, over_x)
            store(ended, over, over_tag)
            left += ones(stays)
            over += ones(leaves)
        offset, alive = odd_steps_offset(taken, log), np.int64(left)
        greatest, odd_ones = end_lanes(np.int64(over), taken, offset, ends, histogram, placed, tile)
        most, odd = max(most, greatest), odd | odd_ones
        taken += STEP_BITS
    return most, odd


@njit(nogil=True, cache=True)
def wide(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, log: float, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Twin of `statistics_tails_portable.wide` for four lanes, below END."""
    _fill_products(h, tile)
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        limit = wide_limit(notes, walked, _HIGH)
        most, odd = _wide_tails(bits, packed, lookup, limit, log, notes.histogram, False, tile)
        if most > record_of(notes):
            _wide_tails(bits, packed, lookup, limit, log, notes.histogram, True, tile)
        elif not odd:
            continue
        failure = settle(start, packed, first, lookup, walked, tile, notes)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def _entrance(entry, products, high_products):
    """Limbs (low, high) of 3^c h + d."""
    c = both(entry, splat(_CLASS_C))
    low = add(lookup(products, c), _d(entry))
    return both(low, splat(_LIMB_MASK)), add(lookup(high_products, c), down(low, splat(_LIMB)))


@njit(nogil=True, cache=True)
def _wide_tails(
    steps: int, packed, tables: Lookup, limit, log: float, histogram, placed: bool, tile: Tile
) -> tuple[np.int64, bool]:
    """Twin of `_narrow_tails` in two limbs."""
    eight, ends, squeezes = tables.eight, tables.ends, tile.orders.squeezes
    products, high_products = tile.products[:32], tile.products[32:]
    lows, highs, live, end, ended = tile.low, tile.high, tile.live, tile.end, tile.ended
    lowest, nothing, everything = splat(_LOW), splat(_ZERO), splat(_ALL)
    limit_high, limit_low = splat(limit[0]), splat(limit[1])
    most, odd, alive, taken, lanes, step = (
        np.int64(0),
        False,
        len(packed),
        steps,
        load(tile.orders.lanes, 0),
        splat(_FOUR),
    )
    while alive:
        left, over, at, all_leave = _ZERO, _ZERO, lanes, _ZERO if taken <= LONG else _LANES
        for j in range(0, alive, 4):
            if taken == steps:
                entry = load(packed, j)
                low, high = _entrance(entry, products, high_products)
                tag, at = _tag(entry, at), add(at, step)
            else:
                low, high = sixteen_wide(load(lows, j), load(highs, j), lookup_at(eight, lows, j), eight)
                tag = load(live, j)
            valid, one_limb = _valid(alive, j), same(high, nothing)
            leave = either(both(one_limb, below_signed(low, lowest)), below_signed(limit_high, high))
            leave = either(leave, both(same(high, limit_high), below_signed(limit_low, low)))
            leaves = (bits(leave) | all_leave) & valid
            stays = leaves ^ valid
            left_low, left_high = squeeze(squeezes, stays, low), squeeze(squeezes, stays, high)
            left_tag, over_tag = squeeze(squeezes, stays, tag), squeeze(squeezes, leaves, tag)
            over_x = squeeze(squeezes, leaves, choose(one_limb, low, everything))
            store(lows, left, left_low)
            store(highs, left, left_high)
            store(live, left, left_tag)
            store(end, over, over_x)
            store(ended, over, over_tag)
            left += ones(stays)
            over += ones(leaves)
        offset, alive = odd_steps_offset(taken, log), np.int64(left)
        greatest, odd_ones = end_lanes(np.int64(over), taken, offset, ends, histogram, placed, tile)
        most, odd = max(most, greatest), odd | odd_ones
        taken += STEP_BITS
    return most, odd


@njit(nogil=True, cache=True)
def narrow_rare(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, floors, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Twin of `statistics_tails_portable.narrow_rare` for four lanes."""
    _fill_products(h, tile)
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        high, low = reach(notes, walked)
        _narrow_rare_tails(packed, lookup, min(SAFE, SAFE if high else low), floors[1], tile)
        failure = settle(start, packed, first, lookup, walked, tile, notes)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def _narrow_rare_tails(packed, tables: Lookup, limit: np.uint64, floors, tile: Tile) -> None:
    eight, squeezes, products, low, live, ended = (
        tables.eight, tile.orders.squeezes, tile.products, tile.low, tile.live, tile.ended
    )  # fmt: skip
    most, lanes, step, alive, over = splat(limit), load(tile.orders.lanes, 0), splat(_FOUR), len(packed), _ZERO
    nothing = splat(_ZERO)
    for taken in range(len(floors)):
        left, at, floor = _ZERO, lanes, splat(floors[taken])
        for j in range(0, alive, 4):
            if taken == 0:
                entry = load(packed, j)
                x, index = add(lookup(products, both(entry, splat(_CLASS_C))), _d(entry)), at
                at = add(at, step)
            else:
                x, index = sixteen_narrow(load(low, j), lookup_at(eight, low, j), eight), load(live, j)
            valid = _valid(alive, j)
            great = bits(either(below_signed(most, x), below_signed(x, nothing))) & valid
            stays = bits(below(floor, x)) & valid & ~great
            left_x, left_index = squeeze(squeezes, stays, x), squeeze(squeezes, stays, index)
            store(low, left, left_x)
            store(live, left, left_index)
            left += ones(stays)
            if great:
                store(ended, over, squeeze(squeezes, great, index))
                over += ones(great)
        alive = np.int64(left)
    mark(alive, np.int64(over), tile)


@njit(nogil=True, cache=True)
def wide_rare(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, floors, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Twin of `statistics_tails_portable.wide_rare` for four lanes, below END."""
    _fill_products(h, tile)
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        _wide_rare_tails(packed, lookup, wide_limit(notes, walked, _HIGH), floors, tile)
        failure = settle(start, packed, first, lookup, walked, tile, notes)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def _wide_rare_tails(packed, tables: Lookup, limit, floors, tile: Tile) -> None:
    eight, squeezes = tables.eight, tile.orders.squeezes
    products, high_products = tile.products[:32], tile.products[32:]
    lows, highs, live, ended = tile.low, tile.high, tile.live, tile.ended
    limit_high, limit_low = splat(limit[0]), splat(limit[1])
    lanes, step, alive, over = load(tile.orders.lanes, 0), splat(_FOUR), len(packed), _ZERO
    for taken in range(floors.shape[1]):
        left, at = _ZERO, lanes
        floor_high, floor_low = splat(floors[0, taken]), splat(floors[1, taken])
        for j in range(0, alive, 4):
            if taken == 0:
                entry = load(packed, j)
                low, high = _entrance(entry, products, high_products)
                index, at = at, add(at, step)
            else:
                low, high = sixteen_wide(load(lows, j), load(highs, j), lookup_at(eight, lows, j), eight)
                index = load(live, j)
            valid = _valid(alive, j)
            great = either(below_signed(limit_high, high), both(same(high, limit_high), below_signed(limit_low, low)))
            great_bits = bits(great) & valid
            above = either(below(floor_high, high), both(same(high, floor_high), below_signed(floor_low, low)))
            stays = bits(above) & valid & ~great_bits
            left_low, left_high = squeeze(squeezes, stays, low), squeeze(squeezes, stays, high)
            left_index = squeeze(squeezes, stays, index)
            store(lows, left, left_low)
            store(highs, left, left_high)
            store(live, left, left_index)
            left += ones(stays)
            if great_bits:
                store(ended, over, squeeze(squeezes, great_bits, index))
                over += ones(great_bits)
        alive = np.int64(left)
    mark(alive, np.int64(over), tile)
