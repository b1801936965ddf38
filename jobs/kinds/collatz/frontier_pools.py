"""Code of mode `frontier` that all CPU variants share: numbers that are followed to their floors.

The floor of n is n with its lowest `shift` bits cleared, or the greatest power of two up to n if that leaves nothing.
Numbers below the floor are smaller than n. A pool stores n / 2^shift, rounded down, with each number.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from jobs.kinds.collatz.frontier_rules import LEAF_BITS
from jobs.kinds.collatz.frontier_walk import Leaves, Tables
from jobs.kinds.collatz.verify_sweep import CANDIDATES, POOL, ROOM, Room, Task, finish
from jobs.kinds.collatz.wide import LIMB

#: Numbers of leaves with at most this number of odd steps fit in one word of 53 bits: 64 * 3^NARROW_ODD < 2^53.
NARROW_ODD = 29
#: Numbers of leaves with at most this number of odd steps fit in the two words of a pool: 64 * 3^WIDE_ODD < 2^117.
WIDE_ODD = 70
#: Number of highest bits of n, below bit N, that the floor keeps.
LEAD_BITS = 30

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_LIMB, _LIMB_MASK, _LIMB_UP = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(64 - LIMB)


class Pool(NamedTuple):
    """Numbers that are not below their floors, and how a floor follows from the highest bits of a number."""

    low: Any
    high: Any
    lead: Any
    #: Depth of the leaves, and number of low bits that a floor clears.
    leaf: Any
    shift: Any
    #: Shifts of the highest bits that lead to the low and the high limb of a floor: left, left, then right.
    low_up: Any
    high_up: Any
    high_down: Any


def pool(bits: int) -> Pool:
    """Return an empty pool for a search of all numbers below 2^bits."""
    shift = max(0, bits - LEAD_BITS)
    shifts = shift if shift < LIMB else 63, max(0, shift - LIMB), max(0, LIMB - shift)
    words = (np.zeros(POOL + ROOM, np.uint64) for _ in range(3))
    return Pool(*words, np.uint64(bits - LEAF_BITS), np.uint64(shift), *map(np.uint64, shifts))


@njit(nogil=True, cache=True)
def lead_of(high: np.uint64, low: np.uint64, shift: np.uint64) -> np.uint64:
    """Return a number of two words without its lowest `shift` bits."""
    if shift >= np.uint64(64):
        return high >> (shift - np.uint64(64))
    return (low >> shift) | ((high << (np.uint64(63) - shift)) << _ONE)


@njit(nogil=True, cache=True)
def finish_at(high: np.uint64, low: np.uint64, lead: np.uint64, pool: Pool, task: Task, room: Room, counts) -> bool:
    """Follow one number to the floor that belongs to its highest bits. Return False on failure."""
    shift = pool.shift
    floor_high, floor_low = _ZERO, lead << (shift & np.uint64(63))
    if shift >= np.uint64(64):
        floor_high, floor_low = floor_low, _ZERO
    elif shift:
        floor_high = lead >> (np.uint64(64) - shift)
    floored = Task(task.h, floor_high, floor_low, task.first, task.end, task.cells, task.rho)
    return finish(high, low, floored, room, counts)


@njit(nogil=True, cache=True)
def finish_least(i: int, leaves: Leaves, task: Task, room: Room, counts) -> bool:
    """Follow the least number of a leaf to the greatest power of two up to it. Return False on failure."""
    high, low = leaves.b_high[i], leaves.b_low[i]
    floor_high, floor_low = _ZERO, _ONE
    word = high or low
    while word > _ONE:
        word >>= _ONE
        floor_low <<= _ONE
    if high:
        floor_high, floor_low = floor_low, _ZERO
    floored = Task(task.h, floor_high, floor_low, task.first, task.end, task.cells, task.rho)
    counts[CANDIDATES] += _ONE
    return finish(leaves.x_high[i], leaves.x_low[i], floored, room, counts)


@njit(nogil=True, cache=True)
def finish_tall(i: int, lead: np.uint64, tables: Tables, leaves: Leaves, pool: Pool, task: Task, room, counts) -> bool:
    """Follow the numbers of a leaf one by one, because their values do not fit in a pool. Return False on failure."""
    high, low, alive = leaves.x_high[i], leaves.x_low[i], leaves.alive[i]
    power_high, power_low = tables.power_high[leaves.c[i]], tables.power_low[leaves.c[i]]
    while alive:
        if alive & _ONE:
            counts[CANDIDATES] += _ONE
            if not finish_at(high, low, lead, pool, task, room, counts):
                return False
        low += power_low
        high += power_high + np.uint64(low < power_low)
        lead += _ONE << (pool.leaf - pool.shift)
        alive >>= _ONE
    return True


@njit(nogil=True, cache=True)
def evict(waiting: int, limit: np.uint64, pool: Pool, task: Task, room: Room, counts) -> int:
    """Follow the numbers that are too large for a pool one by one. Return the size of the pool, or -1 on failure."""
    left, pool_low, pool_high, pool_lead = 0, pool.low, pool.high, pool.lead
    for i in range(waiting):
        low, high, lead = pool_low[i], pool_high[i], pool_lead[i]
        pool_low[left], pool_high[left], pool_lead[left] = low, high, lead
        if not (high >> limit or low >> _LIMB):
            left += 1
        elif not finish_at(high >> _LIMB_UP, low + (high << _LIMB), lead, pool, task, room, counts):
            return -1
    return left


@njit(nogil=True, cache=True)
def prepare(count: int, tables: Tables, leaves: Leaves, pool: Pool, task: Task, room: Room, counts) -> bool:
    """Follow the numbers that no pool can hold, and take them out of their leaves. Return False on failure."""
    b_high, b_low, odd, alive, lead, shift = (
        leaves.b_high,
        leaves.b_low,
        leaves.c,
        leaves.alive,
        leaves.lead,
        pool.shift,
    )
    for i in range(count):
        lead[i] = lead_of(b_high[i], b_low[i], shift)
        if not lead[i] and alive[i] & _ONE:
            if not finish_least(i, leaves, task, room, counts):
                return False
            alive[i] &= ~_ONE
        if odd[i] > WIDE_ODD and alive[i]:
            if not finish_tall(i, lead[i], tables, leaves, pool, task, room, counts):
                return False
            alive[i] = _ZERO
    return True
