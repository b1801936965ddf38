"""Statistics of blocks on CPUs with AVX2: four residue classes at once, with eight steps per table lookup."""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.bits import ones
from jobs.kinds.collatz.quad_steps import HIGH_BITS, carried, eight, eight_wide, narrow_half, wide_half
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
    lookup_at,
    same,
    splat,
    squeeze,
    store,
)
from jobs.kinds.collatz.statistics_blocks import (
    AGAIN,
    BYTES,
    LONG,
    POWERS,
    TAG_WEIGHT,
    TILE,
    Notes,
    Tile,
    end_lanes,
    give_up,
    mark,
    odd_steps_offset,
    reach,
    record_of,
    settle,
)
from jobs.kinds.collatz.statistics_tails_portable import wide_limit
from jobs.kinds.collatz.tables import D_SHIFT, LOW_BITS, STEP_BITS, WEIGHT_SHIFT, Groups, Lookup
from jobs.kinds.collatz.wide import LIMB, SAFE

#: Exclusive upper bound of the numbers that this module supports; larger numbers would exceed two words too often.
END = 2**72
#: Whether this module supports blocks of 2^24 large numbers; yes, because 3^c h is computed by additions.
ANY_LEVEL = True

_ZERO, _ALL, _THREE, _FOUR = np.uint64(0), np.uint64(2**64 - 1), np.uint64(3), np.uint64(4)
_CLASS_D = np.uint64(2 ** (WEIGHT_SHIFT - D_SHIFT) - 1)
_TILE, _END = np.uint64(TILE), np.int64(TILE)
_D_SHIFT, _LOW = np.uint64(D_SHIFT), np.uint64(2**LOW_BITS)
_TO_TAG, _TAG_MASK = np.uint64(WEIGHT_SHIFT - TAG_WEIGHT), np.uint64(2**64 - 2**TAG_WEIGHT)
_LIMB, _LIMB_MASK, _SIGN = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(2**63)
_DIGIT, _TWO_DIGITS = np.uint64(27), np.uint64(54)
_HIGH = np.uint64(2**HIGH_BITS)


@njit(nogil=True, cache=True)
def _fill_products(h, tile: Tile) -> None:
    """Fill the table of products 3^c h, which is indexed by the lowest byte of a packed residue class.

    The byte contains c. Products are stored in words of 54 and 64 bits. h consists of digits of 27 bits, or of one
    word.
    """
    low, high = h[0], _ZERO
    if len(h) > 1:
        low, high = h[0] | h[1] << _DIGIT, h[2] | h[3] << _DIGIT
    products = tile.products
    for c in range(POWERS):
        for byte in range(c, BYTES, POWERS):
            products[byte], products[BYTES + byte] = low, high
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
def narrow(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, log: float, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Process a block like `statistics_tails_portable.narrow`, but four residue classes at once."""
    _fill_products(h, tile)
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        high, low = reach(notes, walked)
        limit = min(SAFE, SAFE if high else low)
        for placed in AGAIN:
            most, odd = _narrow_tails(bits, packed, lookup, limit, log, notes.histogram, placed, tile)
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
    steps: int, packed, tables: Lookup, limit: np.uint64, log: float, histogram, placed: bool, tile: Tile
) -> tuple[np.int64, bool]:
    """Compute every class of a tile until its delay is known or the class is marked for computation step by step.

    Return (maximum delay, whether any class is marked ODD_ONE).
    """
    eight, ends, taken, pad = tables.eight, tables.ends, steps, -len(packed) & 3
    alive, over = _narrow_enter(packed, limit, tile)
    most, odd = end_lanes(over + pad, _END, taken, odd_steps_offset(taken, log), ends, histogram, placed, tile)
    while alive and taken <= LONG:
        taken, pad = taken + STEP_BITS, -alive & 3
        narrow_half(alive, eight, tile.low)
        alive, over = _narrow_rest(alive, eight, limit, tile)
        offset = odd_steps_offset(taken, log)
        greatest, odd_ones = end_lanes(over + pad, _END, taken, offset, ends, histogram, placed, tile)
        most, odd = max(most, greatest), odd | odd_ones
    return most, odd | give_up(alive, tile)


@njit(nogil=True, cache=True)
def _range(limit: np.uint64):
    """Return (shift, most) for a single signed comparison: a class has finished or is too large if most < x + shift."""
    return splat(_SIGN - _LOW), splat((limit - _LOW) ^ _SIGN)


@njit(nogil=True, cache=True)
def _narrow_enter(packed, limit: np.uint64, tile: Tile) -> tuple[np.int64, np.int64]:
    """Compute the first value of every class of a tile, and separate the finished classes from the others.

    Return (number of continuing classes, start of the finished classes in `Tile.end`). The list of finished lanes grows
    down from TILE. It starts with the unused lanes, which the caller skips.
    """
    products, firsts, partitions = tile.products, tile.orders.firsts, tile.orders.partitions
    low, live, end, ended = tile.low, tile.live, tile.end, tile.ended
    shift, most = _range(limit)
    left, over, at, step = _ZERO, _TILE, load(tile.orders.lanes, 0), splat(_FOUR)
    for j in range(0, len(packed), 4):
        entry = load(packed, j)
        x, tag = add(lookup_at(products, packed, j), _d(entry)), _tag(entry, at)
        x, at = both(x, load(firsts, 4 * min(4, len(packed) - j))), add(at, step)
        leaves = bits(below_signed(most, add(x, shift)))
        x, tag, gone = squeeze(partitions, leaves, x), squeeze(partitions, leaves, tag), ones(leaves)
        store(low, left, x)
        store(live, left, tag)
        store(end, over - _FOUR, x)
        store(ended, over - _FOUR, tag)
        left, over = left + _FOUR - gone, over - gone
    return np.int64(left), np.int64(over)


@njit(nogil=True, cache=True)
def _narrow_rest(alive: int, table, limit: np.uint64, tile: Tile) -> tuple[np.int64, np.int64]:
    """Perform the last eight of 16 steps on all classes of a tile, and separate the finished classes from the others.

    The result has the same form as the result of `_narrow_enter`.
    """
    low, live, end, ended, partitions = tile.low, tile.live, tile.end, tile.ended, tile.orders.partitions
    shift, most = _range(limit)
    left, over = _ZERO, _TILE
    for j in range(0, alive, 4):
        x, tag = eight(load(low, j), lookup_at(table, low, j)), load(live, j)
        leaves = bits(below_signed(most, add(x, shift)))
        x, tag, gone = squeeze(partitions, leaves, x), squeeze(partitions, leaves, tag), ones(leaves)
        store(low, left, x)
        store(live, left, tag)
        store(end, over - _FOUR, x)
        store(ended, over - _FOUR, tag)
        left, over = left + _FOUR - gone, over - gone
    return np.int64(left), np.int64(over)


@njit(nogil=True, cache=True)
def wide(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, log: float, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Process a block like `statistics_tails_portable.wide`, but four residue classes at once.

    Numbers must be below END.
    """
    _fill_products(h, tile)
    for at in range(0, len(groups.packed), TILE):
        packed, first = groups.packed[at : at + TILE], groups.first[at : at + TILE]
        limit = wide_limit(notes, walked, _HIGH)
        for placed in AGAIN:
            most, odd = _wide_tails(bits, packed, lookup, limit, log, notes.histogram, placed, tile)
            if most <= record_of(notes):
                break
        if most <= record_of(notes) and not odd:
            continue
        failure = settle(start, packed, first, lookup, walked, tile, notes)
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def _wide_tails(
    steps: int, packed, tables: Lookup, limit, log: float, histogram, placed: bool, tile: Tile
) -> tuple[np.int64, bool]:
    """Compute the classes of a tile like `_narrow_tails`, but with two words per number."""
    eight, ends, taken, pad = tables.eight, tables.ends, steps, -len(packed) & 3
    alive, over = _wide_enter(packed, limit, tile)
    most, odd = end_lanes(over + pad, _END, taken, odd_steps_offset(taken, log), ends, histogram, placed, tile)
    while alive and taken <= LONG:
        taken, pad = taken + STEP_BITS, -alive & 3
        wide_half(alive, eight, tile.low, tile.high)
        alive, over = _wide_rest(alive, eight, limit, tile)
        offset = odd_steps_offset(taken, log)
        greatest, odd_ones = end_lanes(over + pad, _END, taken, offset, ends, histogram, placed, tile)
        most, odd = max(most, greatest), odd | odd_ones
    return most, odd | give_up(alive, tile)


@njit(nogil=True, cache=True)
def _wide_entrance(packed, j: int, products, high_products, firsts):
    """Return 3^c h + d of four classes from index j on, as words (low, high); zero after the last class."""
    valid, entry = load(firsts, 4 * min(4, len(packed) - j)), load(packed, j)
    low = add(lookup_at(products, packed, j), _d(entry))
    return carried(both(low, valid), both(lookup_at(high_products, packed, j), valid))


@njit(nogil=True, cache=True)
def _wide_leave(low, high, limit_low, limit_high):
    """Return a bit mask of the classes that have finished or are too large, and the values to store for the classes."""
    one_limb = same(high, splat(_ZERO))
    leave = either(both(one_limb, below_signed(low, splat(_LOW))), below_signed(limit_high, high))
    leave = either(leave, both(same(high, limit_high), below_signed(limit_low, low)))
    return bits(leave), choose(one_limb, low, splat(_ALL))


@njit(nogil=True, cache=True)
def _above(low, high, limit_low, limit_high):
    return either(below(limit_high, high), both(same(high, limit_high), below_signed(limit_low, low)))


@njit(nogil=True, cache=True)
def _wide_enter(packed, limit, tile: Tile) -> tuple[np.int64, np.int64]:
    """Start the classes of a tile like `_narrow_enter`, but with two words per number."""
    products, high_products, firsts = tile.products[:BYTES], tile.products[BYTES:], tile.orders.firsts
    lows, highs, live, end, ended = tile.low, tile.high, tile.live, tile.end, tile.ended
    partitions, limit_high, limit_low = tile.orders.partitions, splat(limit[0]), splat(limit[1])
    left, over, at, step = _ZERO, _TILE, load(tile.orders.lanes, 0), splat(_FOUR)
    for j in range(0, len(packed), 4):
        low, high = _wide_entrance(packed, j, products, high_products, firsts)
        tag, at = _tag(load(packed, j), at), add(at, step)
        leaves, x = _wide_leave(low, high, limit_low, limit_high)
        tag, gone = squeeze(partitions, leaves, tag), ones(leaves)
        store(lows, left, squeeze(partitions, leaves, low))
        store(highs, left, squeeze(partitions, leaves, high))
        store(live, left, tag)
        store(end, over - _FOUR, squeeze(partitions, leaves, x))
        store(ended, over - _FOUR, tag)
        left, over = left + _FOUR - gone, over - gone
    return np.int64(left), np.int64(over)


@njit(nogil=True, cache=True)
def _wide_rest(alive: int, table, limit, tile: Tile) -> tuple[np.int64, np.int64]:
    """Perform eight steps like `_narrow_rest`, but with two words per number."""
    lows, highs, live, end, ended = tile.low, tile.high, tile.live, tile.end, tile.ended
    partitions, limit_high, limit_low = tile.orders.partitions, splat(limit[0]), splat(limit[1])
    left, over = _ZERO, _TILE
    for j in range(0, alive, 4):
        low, high = carried(*eight_wide(load(lows, j), load(highs, j), lookup_at(table, lows, j)))
        leaves, x = _wide_leave(low, high, limit_low, limit_high)
        tag, gone = squeeze(partitions, leaves, load(live, j)), ones(leaves)
        store(lows, left, squeeze(partitions, leaves, low))
        store(highs, left, squeeze(partitions, leaves, high))
        store(live, left, tag)
        store(end, over - _FOUR, squeeze(partitions, leaves, x))
        store(ended, over - _FOUR, tag)
        left, over = left + _FOUR - gone, over - gone
    return np.int64(left), np.int64(over)


@njit(nogil=True, cache=True)
def narrow_rare(
    h, bits: int, groups: Groups, lookup: Lookup, start: np.uint64, floors, walked: bool, notes: Notes, tile: Tile
) -> int:
    """Find the records of a block like `statistics_tails_portable.narrow_rare`, but four residue classes at once."""
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
    table, squeezes, firsts, products = tables.eight, tile.orders.squeezes, tile.orders.firsts, tile.products
    low, live, ended = tile.low, tile.live, tile.ended
    most, at, step, alive, over = splat(limit), load(tile.orders.lanes, 0), splat(_FOUR), len(packed), _ZERO
    for taken in range(len(floors)):
        left, floor = _ZERO, splat(floors[taken])
        if taken:
            narrow_half(alive, table, low)
        for j in range(0, alive, 4):
            if taken:
                x, index = eight(load(low, j), lookup_at(table, low, j)), load(live, j)
            else:
                x, index = add(lookup_at(products, packed, j), _d(load(packed, j))), at
                x, at = both(x, load(firsts, 4 * min(4, alive - j))), add(at, step)
            great = bits(below_signed(most, x))
            stays = bits(below(floor, x)) & ~great
            store(low, left, squeeze(squeezes, stays, x))
            store(live, left, squeeze(squeezes, stays, index))
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
    """Find the records of a block like `statistics_tails_portable.wide_rare`, but four residue classes at once.

    Numbers must be below END.
    """
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
    table, squeezes, firsts = tables.eight, tile.orders.squeezes, tile.orders.firsts
    products, high_products = tile.products[:BYTES], tile.products[BYTES:]
    lows, highs, live, ended = tile.low, tile.high, tile.live, tile.ended
    limit_high, limit_low = splat(limit[0]), splat(limit[1])
    at, step, alive, over = load(tile.orders.lanes, 0), splat(_FOUR), len(packed), _ZERO
    for taken in range(floors.shape[1]):
        left, floor_high, floor_low = _ZERO, splat(floors[0, taken]), splat(floors[1, taken])
        if taken:
            wide_half(alive, table, lows, highs)
        for j in range(0, alive, 4):
            if taken:
                low, high = carried(*eight_wide(load(lows, j), load(highs, j), lookup_at(table, lows, j)))
                index = load(live, j)
            else:
                low, high = _wide_entrance(packed, j, products, high_products, firsts)
                index, at = at, add(at, step)
            great = bits(_above(low, high, limit_low, limit_high))
            stays = bits(_above(low, high, floor_low, floor_high)) & ~great
            store(lows, left, squeeze(squeezes, stays, low))
            store(highs, left, squeeze(squeezes, stays, high))
            store(live, left, squeeze(squeezes, stays, index))
            left += ones(stays)
            if great:
                store(ended, over, squeeze(squeezes, great, index))
                over += ones(great)
        alive = np.int64(left)
    mark(alive, np.int64(over), tile)
