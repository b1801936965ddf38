"""Follows the surviving numbers of leaves to their floors on any CPU, one after the other."""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.bits import lowest
from jobs.kinds.collatz.frontier_pools import NARROW_ODD, Pool, evict
from jobs.kinds.collatz.frontier_walk import Leaves, Tables
from jobs.kinds.collatz.tables import C_SHIFT, STEP_BITS
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
)
from jobs.kinds.collatz.wide import LIMB, in_limbs

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_STEP, _STEP_MASK = np.uint64(STEP_BITS), np.uint64(2**STEP_BITS - 1)
_C_SHIFT, _D_MASK = np.uint64(C_SHIFT), np.uint64(2**C_SHIFT - 1)
_LIMB, _LIMB_MASK, _PART = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(LIMB - STEP_BITS)
#: Maximum number of bits of a number's high word: 16 steps lead to at most 2^38 3^16 < 2^64.
_HIGH_BITS = np.uint64(38)


@njit(nogil=True, cache=True)
def sweep(
    waiting: int,
    count: int,
    is_narrow: bool,
    tables: Tables,
    leaves: Leaves,
    pool: Pool,
    task: Task,
    room: Room,
    counts: np.ndarray,
) -> int:
    """Add the numbers of `count` leaves to a pool of one size. Return the size of the pool, or -1 on failure."""
    i = np.int64(0)
    while i < count and waiting >= 0:
        i, waiting = _enter(i, count, waiting, is_narrow, tables, leaves, pool, counts)
        if waiting > POOL:
            waiting = down(waiting, POOL, is_narrow, pool, task, room, counts)
    return waiting


@njit(nogil=True, cache=True)
def _enter(
    i: int, count: int, waiting: int, is_narrow: bool, tables: Tables, leaves: Leaves, pool: Pool, counts: np.ndarray
) -> tuple[int, int]:
    """Add the numbers of leaves until the pool is full. Return (next leaf, size of the pool)."""
    x_high, x_low, odd, leads = leaves.x_high, leaves.x_low, leaves.c, leaves.lead
    all_high, all_low, pool_low, pool_high, pool_lead = (
        tables.power_high,
        tables.power_low,
        pool.low,
        pool.high,
        pool.lead,
    )
    before, all_alive, step = waiting, leaves.alive, pool.leaf - pool.shift
    while i < count and waiting <= POOL:
        c, alive, lead = odd[i], all_alive[i], leads[i]
        if (c <= NARROW_ODD) == is_narrow:
            high, low = in_limbs(x_high[i], x_low[i])
            power_high, power_low = in_limbs(all_high[c], all_low[c])
            while alive:
                a = lowest(alive)
                alive &= alive - _ONE
                x = low + a * power_low
                pool_low[waiting] = x & _LIMB_MASK
                pool_high[waiting] = high + a * power_high + (x >> _LIMB)
                pool_lead[waiting] = lead + (a << step)
                waiting += 1
        i += 1
    counts[CANDIDATES] += np.uint64(waiting - before)
    return i, waiting


@njit(nogil=True, cache=True)
def down(waiting: int, most: int, is_narrow: bool, pool: Pool, task: Task, room: Room, counts: np.ndarray) -> int:
    """Reduce a pool to at most `most` numbers, 16 steps at a time. Return its new size, or -1 on failure."""
    for _ in range(PASSES):
        waiting = evict(waiting, _HIGH_BITS, pool, task, room, counts)
        if waiting <= most:
            return waiting
        counts[BLOCKS] += np.uint64(waiting)
        waiting = _pass(waiting, pool, room, counts)
    return -1


@njit(nogil=True, cache=True)
def _pass(waiting: int, pool: Pool, room: Room, counts: np.ndarray) -> int:
    """Perform 16 steps on the numbers of the pool, and return its new size."""
    steps, powers, left = room.steps, room.powers, 0
    sum_low, sum_high, all_low, all_high = counts[SUM_LOW], counts[SUM_HIGH], counts[BITS_LOW], counts[BITS_HIGH]
    pool_low, pool_high, pool_lead = pool.low, pool.high, pool.lead
    low_up, high_up, high_down = pool.low_up, pool.high_up, pool.high_down
    for j in range(waiting):
        low, high, lead = pool_low[j], pool_high[j], pool_lead[j]
        entry = np.uint64(steps[low & _STEP_MASK])
        power = powers[entry >> _C_SHIFT]
        high *= power
        low = (low >> _STEP) * power + (entry & _D_MASK) + ((high << _PART) & _LIMB_MASK)
        high = (high >> _STEP) + (low >> _LIMB)
        low &= _LIMB_MASK
        floor_high, floor_low = (lead << high_up) >> high_down, (lead << low_up) & _LIMB_MASK
        waits = (high > floor_high) | ((high == floor_high) & (low >= floor_low))
        pool_low[left], pool_high[left], pool_lead[left] = low, high, lead
        left += waits
        all_low |= low
        all_high |= high
        sum_low += _ZERO if waits else low
        sum_high += _ZERO if waits else high
    counts[SUM_LOW], counts[SUM_HIGH] = sum_low & _LIMB_MASK, sum_high + (sum_low >> _LIMB)
    counts[BITS_LOW], counts[BITS_HIGH] = all_low, all_high
    return left
