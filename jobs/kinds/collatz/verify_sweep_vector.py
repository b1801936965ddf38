"""Verifies pieces of a range on CPUs with AVX-512: eight numbers at once, with four steps per lookup in registers."""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.bits import ones
from jobs.kinds.collatz.vector_steps import eight_wide, sixteen_narrow, tables
from jobs.kinds.collatz.vectors import (
    add,
    below,
    both,
    down,
    either,
    keep,
    load,
    load_bytes,
    mul,
    same,
    splat,
    squeeze,
    squeeze_bytes,
    store,
    store_bytes,
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

#: Exclusive upper bound of the numbers that this module can verify; all valid numbers are below it.
END = 2**96
#: Index in `places` at which the list of a residue's cells starts.
LISTED = 256

_ZERO, _EIGHT = np.uint64(0), np.uint64(8)
_LIMB, _LIMB_MASK = np.uint64(LIMB), np.uint64(2**LIMB - 1)
#: Maximum number of bits of a number's high word: 8 steps lead to at most 2^51, and 2^51 3^8 < 2^64.
HIGH_BITS = np.uint64(46)
#: Upper bounds of values that can be added to a pool, so that they fit in every cell: 256 * 3^24 < 2^47.
_NARROW, _WIDE = np.uint64(2**53), np.uint64(2**45)


@njit(nogil=True, cache=True)
def _list_cells(row: int, entry: int, masks, threes, cells, places) -> int:
    """List the cells that contain candidates of a residue as bytes, and return the number of cells."""
    listed = np.int64(0)
    for word in range(4):
        bits = masks[row, word] & threes[entry, word] & cells[word]
        store_bytes(places, LISTED + listed, squeeze_bytes(bits, load_bytes(places, 64 * word)))
        listed += np.int64(ones(bits))
    return listed


@njit(nogil=True, cache=True)
def _carry(low, high, counts: np.ndarray) -> None:
    """Carry the low words of sums into the high words, and store the sums in the counts."""
    store(counts, SUM_LOW, both(low, splat(_LIMB_MASK)))
    store(counts, SUM_HIGH, add(high, down(low, splat(_LIMB))))


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
    places, pool, four, floor, h, end = (
        room.places,
        room.low,
        tables(room.four),
        splat(task.floor_low),
        task.h,
        task.end,
    )
    stopped, high_sum, every = load(counts, SUM_LOW), load(counts, SUM_HIGH), load(counts, BITS_LOW)
    lane, step, entered, around = widen(places, 0), splat(_EIGHT), 0, task.rho
    while i < end and waiting <= POOL:
        power, d, rho = unpack(packed[i], powers)
        high, low = entrance(power, d, h)
        if high or low >= _NARROW:
            break
        listed = _list_cells(i, rho + around, masks, threes, cells, places)
        entered += listed
        first, factor, at, count = splat(low), splat(power), lane, splat(np.uint64(listed))
        for j in range(LISTED, LISTED + listed, 8):
            x = sixteen_narrow(add(first, mul(widen(places, j), factor)), four)
            valid, stops = below(at, count), below(x, floor)
            every = either(every, keep(valid, x))
            stopped = add(stopped, keep(valid & stops, x))
            store(pool, waiting, squeeze(valid & ~stops, x))
            waiting += np.int64(ones(valid & ~stops))
            at = add(at, step)
        high_sum = add(high_sum, down(stopped, splat(_LIMB)))
        stopped = both(stopped, splat(_LIMB_MASK))
        i += 1
    store(counts, BITS_LOW, every)
    _carry(stopped, high_sum, counts)
    counts[CANDIDATES] += np.uint64(entered)
    counts[BLOCKS] += np.uint64(entered)
    return i, waiting


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
    """Perform 16 steps on the numbers of the pool, and return its new size."""
    pool, four, floor, left = room.low, tables(room.four), splat(task.floor_low), 0
    stopped, every = load(counts, SUM_LOW), load(counts, BITS_LOW)
    at, end, step = widen(room.places, 0), splat(np.uint64(waiting)), splat(_EIGHT)
    for j in range(0, waiting, 8):
        x = sixteen_narrow(load(pool, j), four)
        valid, stops = below(at, end), below(x, floor)
        every = either(every, keep(valid, x))
        stopped = add(stopped, keep(valid & stops, x))
        store(pool, left, squeeze(valid & ~stops, x))
        left += np.int64(ones(valid & ~stops))
        at = add(at, step)
    store(counts, BITS_LOW, every)
    _carry(stopped, load(counts, SUM_HIGH), counts)
    return left


@njit(nogil=True, cache=True)
def wide(task: Task, sieve: Sieve, room: Room, counts: np.ndarray) -> bool:
    """Verify a part of any block, with two words per number. Return False on failure.

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
    places, pool_low, pool_high, four, h, end = room.places, room.low, room.high, tables(room.four), task.h, task.end
    floor_limbs = in_limbs(task.floor_high, task.floor_low)
    floor_high, floor_low, mask, limb = splat(floor_limbs[0]), splat(floor_limbs[1]), splat(_LIMB_MASK), splat(_LIMB)
    sum_low, sum_high = load(counts, SUM_LOW), load(counts, SUM_HIGH)
    all_low, all_high = load(counts, BITS_LOW), load(counts, BITS_HIGH)
    lane, step, entered, around = widen(places, 0), splat(_EIGHT), 0, task.rho
    while i < end and waiting <= POOL:
        power, d, rho = unpack(packed[i], powers)
        high, low = in_limbs(*entrance(power, d, h))
        if high >= _WIDE:
            break
        listed = _list_cells(i, rho + around, masks, threes, cells, places)
        entered += listed
        first_low, first_high, factor, at, count = splat(low), splat(high), splat(power), lane, splat(np.uint64(listed))
        for j in range(LISTED, LISTED + listed, 8):
            low = add(first_low, mul(widen(places, j), factor))
            high = add(first_high, down(low, limb))
            low, high = eight_wide(both(low, mask), high, four)
            low, high = eight_wide(low, high, four)
            valid = below(at, count)
            stops = below(high, floor_high) | (same(high, floor_high) & below(low, floor_low))
            all_low, all_high = either(all_low, keep(valid, low)), either(all_high, keep(valid, high))
            sum_low, sum_high = add(sum_low, keep(valid & stops, low)), add(sum_high, keep(valid & stops, high))
            store(pool_low, waiting, squeeze(valid & ~stops, low))
            store(pool_high, waiting, squeeze(valid & ~stops, high))
            waiting += np.int64(ones(valid & ~stops))
            at = add(at, step)
        sum_high = add(sum_high, down(sum_low, limb))
        sum_low = both(sum_low, mask)
        i += 1
    store(counts, BITS_LOW, all_low)
    store(counts, BITS_HIGH, all_high)
    _carry(sum_low, sum_high, counts)
    counts[CANDIDATES] += np.uint64(entered)
    counts[BLOCKS] += np.uint64(entered)
    return i, waiting


@njit(nogil=True, cache=True)
def _down_wide(waiting: int, most: int, task: Task, room: Room, counts: np.ndarray) -> int:
    """Reduce the pool to at most `most` numbers, 16 steps at a time. Return its new size, or -1 on failure."""
    for _ in range(PASSES):
        waiting = settle(waiting, HIGH_BITS, task, room, counts)
        if waiting <= most:
            return waiting
        counts[BLOCKS] += np.uint64(waiting)
        waiting = _pass_wide(waiting, task, room, counts)
    return -1


@njit(nogil=True, cache=True)
def _pass_wide(waiting: int, task: Task, room: Room, counts: np.ndarray) -> int:
    """Perform 16 steps on the numbers of the pool, and return its new size."""
    pool_low, pool_high, four, left = room.low, room.high, tables(room.four), 0
    floor_high, floor_low = in_limbs(task.floor_high, task.floor_low)
    floor = splat(floor_low), splat(floor_high)
    at, end, step = widen(room.places, 0), splat(np.uint64(waiting)), splat(_EIGHT)
    sums = load(counts, SUM_LOW), load(counts, SUM_HIGH)
    every = load(counts, BITS_LOW), load(counts, BITS_HIGH)
    for j in range(0, waiting, 8):
        xl, xh = eight_wide(load(pool_low, j), load(pool_high, j), four)
        xl, xh = eight_wide(xl, xh, four)
        valid = below(at, end)
        stops = below(xh, floor[1]) | (same(xh, floor[1]) & below(xl, floor[0]))
        every = either(every[0], keep(valid, xl)), either(every[1], keep(valid, xh))
        sums = add(sums[0], keep(valid & stops, xl)), add(sums[1], keep(valid & stops, xh))
        store(pool_low, left, squeeze(valid & ~stops, xl))
        store(pool_high, left, squeeze(valid & ~stops, xh))
        left += np.int64(ones(valid & ~stops))
        at = add(at, step)
    store(counts, BITS_LOW, every[0])
    store(counts, BITS_HIGH, every[1])
    _carry(sums[0], sums[1], counts)
    return left
