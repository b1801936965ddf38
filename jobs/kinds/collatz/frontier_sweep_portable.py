"""Follows the surviving numbers of leaves to their floors on any CPU, one after the other."""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.frontier_pools import (
    HIGH_SUMS,
    LOW_SUMS,
    PASSED,
    PASSES,
    POOL,
    Pool,
    Room,
    enter,
    evict,
    find_large,
    prepare,
)
from jobs.kinds.collatz.frontier_rules import INNER, LIMB
from jobs.kinds.collatz.frontier_walk import LEAVES, Leaves, Tables, look_up, walk

_ZERO, _NINE, _NINE_MASK = np.uint64(0), np.uint64(9), np.uint64(511)
_HALF, _LOW_HALF = np.uint64(32), np.uint64(2**32 - 1)
_LIMB, _LIMB_MASK, _PART = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(LIMB - 9)
#: Maximum number of bits of a number's high word for which 18 steps fit in one word: 2^44 3^18 / 2^9 < 2^64.
_MOST_BITS = np.uint64(44)


@njit(nogil=True, cache=True)
def search(
    size: int,
    count: int,
    is_last: bool,
    stack: np.ndarray,
    tall: np.ndarray,
    tables: Tables,
    leaves: Leaves,
    pools: tuple[Pool, Pool],
    waiting: np.ndarray,
    room: Room,
    counts: np.ndarray,
) -> tuple[int, int, int]:
    """Walk down from the nodes on the stack, and add the numbers of leaves to the pools for wide and narrow numbers.

    Pause at tall nodes. With `is_last`, then follow all numbers to their floors. Return the size of the stack, the
    number of leaves, and the number of tall nodes, or -1 on failure.
    """
    size, count, heads = walk(stack, size, count, np.int64(pools[0].leaf), tables, leaves, tall)
    while count == LEAVES or (is_last and count and size == 0):
        look_up(count, tables, leaves)
        if not prepare(count, tables, leaves, pools[0], room, counts):
            return size, count, -1
        for is_narrow in (False, True):
            i = np.int64(is_narrow)
            waiting[i] = _sweep(waiting[i], count, is_narrow, tables, leaves, pools[i], room, counts)
            if waiting[i] < 0:
                return size, count, -1
        count = 0
        if heads == 0:
            size, count, heads = walk(stack, size, count, np.int64(pools[0].leaf), tables, leaves, tall)
    if is_last and size == 0 and heads == 0:
        for i in range(2):
            waiting[i] = _down(waiting[i], 0, pools[i], room, counts)
            if waiting[i] < 0:
                return size, count, -1
    return size, count, heads


@njit(**INNER)
def _sweep(
    waiting: int, count: int, is_narrow: bool, tables: Tables, leaves: Leaves, pool: Pool, room: Room, counts
) -> int:
    """Add the numbers of `count` leaves to a pool of one size. Return the size of the pool, or -1 on failure."""
    i = np.int64(0)
    while i < count and waiting >= 0:
        before = waiting
        i, waiting, high = enter(i, count, waiting, is_narrow, tables, leaves, pool, counts)
        if high >> _MOST_BITS:
            waiting = evict(before, waiting, _MOST_BITS, pool, room, counts)
        if waiting >= 0:
            _start(before, waiting, pool, room, counts)
        if waiting > POOL:
            waiting = _down(waiting, POOL, pool, room, counts)
    return waiting


@njit(**INNER)
def _down(waiting: int, most: int, pool: Pool, room: Room, counts: np.ndarray) -> int:
    """Reduce a pool to at most `most` numbers, 18 steps at a time. Return its new size, or -1 on failure."""
    for _ in range(PASSES):
        if find_large(waiting, False, _MOST_BITS, pool, counts):
            waiting = evict(0, waiting, _MOST_BITS, pool, room, counts)
        if waiting <= most:
            return waiting
        counts[PASSED] += np.uint64(waiting)
        waiting = _pass(waiting, pool, room, counts)
    return -1


@njit(**INNER)
def _eighteen(low, high, nines):
    """Perform 18 shortcut steps on a number of a pool."""
    for _ in range(2):
        entry = nines[low & _NINE_MASK]
        power = entry & _LOW_HALF
        high *= power
        low = (low >> _NINE) * power + (entry >> _HALF) + ((high << _PART) & _LIMB_MASK)
        high >>= _NINE
    return low & _LIMB_MASK, high + (low >> _LIMB)


@njit(**INNER)
def _start(first: int, waiting: int, pool: Pool, room: Room, counts: np.ndarray) -> None:
    """Perform the first 18 steps of numbers, which do not lead below the floor."""
    pool_low, pool_high, nines = pool.low, pool.high, room.nines
    for j in range(first, waiting):
        pool_low[j], pool_high[j] = _eighteen(pool_low[j], pool_high[j], nines)
    counts[PASSED] += np.uint64(waiting - first)


@njit(**INNER)
def _pass(waiting: int, pool: Pool, room: Room, counts: np.ndarray) -> int:
    """Perform 18 steps on the numbers of the pool, and return its new size."""
    nines, left, low_sum, high_sum = room.nines, 0, counts[LOW_SUMS], counts[HIGH_SUMS]
    pool_low, pool_high, pool_lead = pool.low, pool.high, pool.lead
    shift, rise, tall = pool.shift, pool.rise, pool.tall
    for j in range(waiting):
        low, high = _eighteen(pool_low[j], pool_high[j], nines)
        lead = pool_lead[j]
        waits = (high >= tall) | ((high << rise) + (low >> shift) >= lead)
        pool_low[left], pool_high[left], pool_lead[left] = low, high, lead
        left += waits
        low_sum += _ZERO if waits else low
        high_sum += _ZERO if waits else high
    counts[LOW_SUMS], counts[HIGH_SUMS] = low_sum, high_sum
    return left
