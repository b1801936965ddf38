"""Verifies pieces of a range on CPUs with AVX2: four numbers at once, with eight steps per table lookup."""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.bits import ones
from jobs.kinds.collatz.quad_steps import HIGH_BITS, carried, eight_wide, sixteen_narrow, wide_half
from jobs.kinds.collatz.quads import (
    add,
    below,
    below_signed,
    bits,
    both,
    down,
    either,
    load,
    lookup,
    lookup_at,
    product,
    same,
    splat,
    squeeze,
    store,
    store_word,
    up,
    widen,
)
from jobs.kinds.collatz.verify_sieve import Sieve
from jobs.kinds.collatz.verify_sweep import (
    BITS_HIGH,
    BITS_LOW,
    BLOCKS,
    CANDIDATES,
    PASSES,
    POOL,
    SUM_HIGH,
    SUM_LOW,
    Room,
    Task,
    entrance,
    finish_residue,
    settle,
    unpack,
)
from jobs.kinds.collatz.wide import LIMB, in_limbs

#: Exclusive upper bound of the numbers that this module supports; larger numbers would exceed two words too often.
END = 2**72
#: Index in `places` at which the list of a residue's cells starts.
LISTED = 256

_ZERO, _HALF, _BYTE, _EIGHT = np.uint64(0), np.uint64(32), np.uint64(255), np.uint64(8)
_FOUR, _EIGHT_ON = np.uint64(4), np.uint64(0x0808080808080808)
_LIMB, _LIMB_MASK, _HIGH_BITS = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(HIGH_BITS)
#: Upper bounds of values that can be added to a pool, so that they fit in every cell: 256 * 3^24 < 2^47.
_NARROW, _WIDE = np.uint64(2**53), np.uint64(2 ** (HIGH_BITS - 1))


@njit(nogil=True, cache=True)
def _list_cells(row: int, entry: int, masks, threes, cells, bytewise, places) -> int:
    """List the cells that contain candidates of a residue as bytes, and return the number of cells."""
    listed, first = np.uint64(LISTED), _ZERO
    for word in range(4):
        live = masks[row, word] & threes[entry, word] & cells[word]
        for _ in range(8):
            store_word(places, listed, bytewise[live & _BYTE] + first)
            listed += ones(live & _BYTE)
            first += _EIGHT_ON
            live >>= _EIGHT
    return np.int64(listed) - LISTED


@njit(nogil=True, cache=True)
def _carry(low, high, counts: np.ndarray) -> None:
    """Carry the low words of sums into the high words, and store the sums in the counts."""
    store(counts, SUM_LOW, both(low, splat(_LIMB_MASK)))
    store(counts, SUM_HIGH, add(high, down(low, splat(_LIMB))))


@njit(nogil=True, cache=True)
def _times(cell, power):
    """Multiply four cell numbers by a power of three below 2^40."""
    return add(product(cell, power), up(product(cell, down(power, splat(_HALF))), splat(_HALF)))


@njit(nogil=True, cache=True)
def narrow(task: Task, sieve: Sieve, room: Room, counts: np.ndarray) -> bool:
    """Verify a part of a block of numbers below 2^48, with one word per number. Return False on failure.

    The counts is invalid after a failure.
    """
    waiting, i = np.int64(0), task.first
    while i < task.end:
        i, waiting = _enter_narrow(i, waiting, task, sieve, room, counts)
        if waiting > POOL:
            waiting = _down_narrow(waiting, np.int64(POOL), task, room, counts)
        elif i < task.end:
            waiting = waiting if finish_residue(i, task, sieve, room, counts) else -1
            i += 1
        if waiting < 0:
            return False
    return _down_narrow(waiting, np.int64(0), task, room, counts) == 0


@njit(nogil=True, cache=True)
def _enter_narrow(i: int, waiting: int, task: Task, sieve: Sieve, room: Room, counts: np.ndarray) -> tuple[int, int]:
    """Add candidates until the pool is full or a value is too large. Return (next residue, size of the pool)."""
    packed, masks, threes, powers, cells = sieve.packed, sieve.masks, sieve.threes, sieve.powers, task.cells
    places, pool, eight, h, end, around = room.places, room.low, room.eight, task.h, task.end, task.rho
    partitions, firsts, bytewise = room.orders.partitions, room.orders.firsts, room.orders.places
    floor, limb, mask = splat(task.floor_low), splat(_LIMB), splat(_LIMB_MASK)
    stopped, high_sum, every = load(counts, SUM_LOW), load(counts, SUM_HIGH), load(counts, BITS_LOW)
    entered, into = 0, np.uint64(waiting)
    while i < end and into <= np.uint64(POOL):
        power, d, rho = unpack(packed[i], powers)
        high, low = entrance(power, d, h)
        if high or low >= _NARROW:
            break
        listed = _list_cells(i, rho + around, masks, threes, cells, bytewise, places)
        entered += listed
        first, factor = splat(low), splat(power)
        for j in range(0, listed, 4):
            x = add(first, _times(widen(places, LISTED + j), factor))
            x = both(x, load(firsts, 4 * min(4, listed - j)))
            x = sixteen_narrow(x, lookup(eight, x), eight)
            # 16 steps from less than 2^53 + 2^47 stay below 2^63, so a signed comparison gives the same result
            stops = below_signed(x, floor)
            every, stopped = either(every, x), add(stopped, both(stops, x))
            gone = bits(stops)
            store(pool, into, squeeze(partitions, gone, x))
            into += _FOUR - ones(gone)
        high_sum = add(high_sum, down(stopped, limb))
        stopped = both(stopped, mask)
        i += 1
    store(counts, BITS_LOW, every)
    _carry(stopped, high_sum, counts)
    counts[CANDIDATES] += np.uint64(entered)
    counts[BLOCKS] += np.uint64(entered)
    return i, np.int64(into)


@njit(nogil=True, cache=True)
def _down_narrow(waiting: int, most: int, task: Task, room: Room, counts: np.ndarray) -> int:
    """Reduce the pool to at most `most` numbers, 16 steps at a time. Return its new size, or -1 on failure."""
    for _ in range(PASSES):
        waiting = settle(waiting, _ZERO, task, room, counts)
        if waiting <= most:
            return waiting
        counts[BLOCKS] += np.uint64(waiting)
        waiting = _pass_narrow(waiting, task, room, counts)
    return -1


@njit(nogil=True, cache=True)
def _pass_narrow(waiting: int, task: Task, room: Room, counts: np.ndarray) -> int:
    """Perform 16 steps on the numbers of the pool, and return its new size. Zero padding counts as finished."""
    pool, eight, partitions, left, floor = room.low, room.eight, room.orders.partitions, _ZERO, splat(task.floor_low)
    stopped, every = load(counts, SUM_LOW), load(counts, BITS_LOW)
    store(pool, waiting, splat(_ZERO))
    for j in range(0, waiting, 4):
        x = sixteen_narrow(load(pool, j), lookup_at(eight, pool, j), eight)
        stops = below(x, floor)
        every, stopped = either(every, x), add(stopped, both(stops, x))
        gone = bits(stops)
        store(pool, left, squeeze(partitions, gone, x))
        left += _FOUR - ones(gone)
    store(counts, BITS_LOW, every)
    _carry(stopped, load(counts, SUM_HIGH), counts)
    return np.int64(left)


@njit(nogil=True, cache=True)
def wide(task: Task, sieve: Sieve, room: Room, counts: np.ndarray) -> bool:
    """Verify a part of a block of numbers below END, with two words per number. Return False on failure.

    The counts is invalid after a failure.
    """
    waiting, i = np.int64(0), task.first
    while i < task.end:
        i, waiting = _enter_wide(i, waiting, task, sieve, room, counts)
        if waiting > POOL:
            waiting = _down_wide(waiting, np.int64(POOL), task, room, counts)
        elif i < task.end:
            waiting = waiting if finish_residue(i, task, sieve, room, counts) else -1
            i += 1
        if waiting < 0:
            return False
    return _down_wide(waiting, np.int64(0), task, room, counts) == 0


@njit(nogil=True, cache=True)
def _enter_wide(i: int, waiting: int, task: Task, sieve: Sieve, room: Room, counts: np.ndarray) -> tuple[int, int]:
    """Add candidates until the pool is full or a value is too large. Return (next residue, size of the pool)."""
    packed, masks, threes, powers, cells = sieve.packed, sieve.masks, sieve.threes, sieve.powers, task.cells
    places, pool_low, pool_high, bytewise = room.places, room.low, room.high, room.orders.places
    h, end, around, into = task.h, task.end, task.rho, waiting
    while i < end and into <= POOL:
        power, d, rho = unpack(packed[i], powers)
        high, low = in_limbs(*entrance(power, d, h))
        if high >= _WIDE:
            break
        listed = _list_cells(i, rho + around, masks, threes, cells, bytewise, places)
        first_low, first_high, factor = splat(low), splat(high), splat(power)
        for j in range(0, listed, 4):
            xl, xh = carried(add(first_low, _times(widen(places, LISTED + j), factor)), first_high)
            store(pool_low, into + j, xl)
            store(pool_high, into + j, xh)
        into += listed
        i += 1
    counts[CANDIDATES] += np.uint64(into - waiting)
    return i, into


@njit(nogil=True, cache=True)
def _down_wide(waiting: int, most: int, task: Task, room: Room, counts: np.ndarray) -> int:
    """Reduce the pool to at most `most` numbers, 16 steps at a time. Return its new size, or -1 on failure."""
    for _ in range(PASSES):
        waiting = settle(waiting, _HIGH_BITS, task, room, counts)
        if waiting <= most:
            return waiting
        counts[BLOCKS] += np.uint64(waiting)
        waiting = _pass_wide(waiting, task, room, counts)
    return -1


@njit(nogil=True, cache=True)
def _pass_wide(waiting: int, task: Task, room: Room, counts: np.ndarray) -> int:
    """Perform 16 steps on the numbers of the pool, and return its new size. Zero padding counts as finished."""
    pool_low, pool_high, table, partitions, left = room.low, room.high, room.eight, room.orders.partitions, _ZERO
    floor_high, floor_low = in_limbs(task.floor_high, task.floor_low)
    floor = splat(floor_low), splat(floor_high)
    sums = load(counts, SUM_LOW), load(counts, SUM_HIGH)
    every = load(counts, BITS_LOW), load(counts, BITS_HIGH)
    wide_half(waiting, table, pool_low, pool_high)
    for j in range(0, waiting, 4):
        xl, xh = carried(*eight_wide(load(pool_low, j), load(pool_high, j), lookup_at(table, pool_low, j)))
        stops = either(below_signed(xh, floor[1]), both(same(xh, floor[1]), below_signed(xl, floor[0])))
        every = either(every[0], xl), either(every[1], xh)
        sums = add(sums[0], both(stops, xl)), add(sums[1], both(stops, xh))
        gone = bits(stops)
        kept_low, kept_high = squeeze(partitions, gone, xl), squeeze(partitions, gone, xh)
        store(pool_low, left, kept_low)
        store(pool_high, left, kept_high)
        left += _FOUR - ones(gone)
    store(counts, BITS_LOW, every[0])
    store(counts, BITS_HIGH, every[1])
    _carry(sums[0], sums[1], counts)
    return np.int64(left)
