"""Verifies pieces of a range on any CPU: one number after the other, with 16 steps per table lookup.

No branch depends on a number.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.bits import lowest, ones
from jobs.kinds.collatz.tables import C_SHIFT, STEP_BITS
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

_ZERO, _ONE, _WORD = np.uint64(0), np.uint64(1), np.uint64(64)
_STEP, _STEP_MASK = np.uint64(STEP_BITS), np.uint64(2**STEP_BITS - 1)
_C_SHIFT, _D_MASK = np.uint64(C_SHIFT), np.uint64(2**C_SHIFT - 1)
_LIMB, _LIMB_MASK, _PART = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(LIMB - STEP_BITS)
#: Maximum number of bits of a number's high word: 16 steps lead to at most 2^38 3^16 < 2^64.
HIGH_BITS = np.uint64(38)
#: Upper bounds of values that can be added to a pool, so that they fit in every cell: 256 * 3^24 < 2^47.
_NARROW, _WIDE = np.uint64(2**53), np.uint64(2**37)


@njit(nogil=True, cache=True)
def _note(sum_low: np.uint64, sum_high: np.uint64, all_low: np.uint64, all_high: np.uint64, counts: np.ndarray) -> None:
    """Add the sums of 16 steps on the pool to the totals.

    A sum of fewer than 2^10 words plus the previous sum fits in 64 bits.
    """
    total = counts[SUM_LOW] + sum_low
    counts[SUM_LOW] = total & _LIMB_MASK
    counts[SUM_HIGH] += sum_high + (total >> _LIMB)
    counts[BITS_LOW] |= all_low
    counts[BITS_HIGH] |= all_high


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
    packed, masks, threes, cells, odds = sieve.packed, sieve.masks, sieve.threes, task.cells, sieve.powers
    pool, steps, powers, floor, h, end = room.low, room.steps, room.powers, task.floor_low, task.h, task.end
    every, around, entered = _ZERO, task.rho, _ZERO
    while i < end and waiting <= POOL:
        power, d, rho = unpack(packed[i], odds)
        high, low = entrance(power, d, h)
        if high or low >= _NARROW:
            break
        stopped = _ZERO
        for word in range(4):
            bits = masks[i, word] & threes[rho + around, word] & cells[word]
            entered += ones(bits)
            while bits:
                x = low + power * lowest(bits)
                bits &= bits - _ONE
                entry = np.uint64(steps[x & _STEP_MASK])
                x = (x >> _STEP) * powers[entry >> _C_SHIFT] + (entry & _D_MASK)
                waits = x >= floor
                pool[waiting] = x
                waiting += waits
                every |= x
                stopped += _ZERO if waits else x
            low += power * _WORD
        _note(stopped, _ZERO, every, _ZERO, counts)
        i += 1
    counts[CANDIDATES] += entered
    counts[BLOCKS] += entered
    return i, waiting


@njit(nogil=True, cache=True)
def _down_narrow(waiting: int, most: int, task: Task, room: Room, counts: np.ndarray) -> int:
    """Reduce the pool to at most `most` numbers, 16 steps at a time. Return its new size, or -1 on failure."""
    pool, steps, powers, floor = room.low, room.steps, room.powers, task.floor_low
    for _ in range(PASSES):
        waiting = settle(waiting, _ZERO, task, room, counts)
        if waiting <= most:
            return waiting
        counts[BLOCKS] += np.uint64(waiting)
        stopped, every, left = _ZERO, _ZERO, 0
        for j in range(waiting):
            x = pool[j]
            entry = np.uint64(steps[x & _STEP_MASK])
            x = (x >> _STEP) * powers[entry >> _C_SHIFT] + (entry & _D_MASK)
            waits = x >= floor
            pool[left] = x
            left += waits
            every |= x
            stopped += _ZERO if waits else x
        _note(stopped, _ZERO, every, _ZERO, counts)
        waiting = left
    return -1


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
    """Add candidates until the pool is full or a value is too large. Return (next residue, size of the pool).

    The candidates make their first steps with the pool, so no candidate can leave the pool earlier.
    """
    packed, masks, threes, cells, odds = sieve.packed, sieve.masks, sieve.threes, task.cells, sieve.powers
    pool_low, pool_high, h, end, around, before = room.low, room.high, task.h, task.end, task.rho, waiting
    while i < end and waiting <= POOL:
        power, d, rho = unpack(packed[i], odds)
        high, low = in_limbs(*entrance(power, d, h))
        if high >= _WIDE:
            break
        for word in range(4):
            bits = masks[i, word] & threes[rho + around, word] & cells[word]
            while bits:
                x = low + power * lowest(bits)
                bits &= bits - _ONE
                pool_low[waiting] = x & _LIMB_MASK
                pool_high[waiting] = high + (x >> _LIMB)
                waiting += 1
            low += power * _WORD
        i += 1
    counts[CANDIDATES] += np.uint64(waiting - before)
    return i, waiting


@njit(nogil=True, cache=True)
def _pass_wide(start: int, waiting: int, task: Task, room: Room, counts: np.ndarray) -> int:
    """Perform 16 steps on the numbers of the pool from index `start` on, and return the new size of the pool."""
    pool_low, pool_high, steps, powers = room.low, room.high, room.steps, room.powers
    floor_high, floor_low = in_limbs(task.floor_high, task.floor_low)
    sum_low, sum_high, all_low, all_high = _ZERO, _ZERO, _ZERO, _ZERO
    left = start
    for j in range(start, waiting):
        low, high = pool_low[j], pool_high[j]
        entry = np.uint64(steps[low & _STEP_MASK])
        power = powers[entry >> _C_SHIFT]
        high *= power
        low = (low >> _STEP) * power + (entry & _D_MASK) + ((high << _PART) & _LIMB_MASK)
        high = (high >> _STEP) + (low >> _LIMB)
        low &= _LIMB_MASK
        waits = (high > floor_high) | ((high == floor_high) & (low >= floor_low))
        pool_low[left], pool_high[left] = low, high
        left += waits
        all_low |= low
        all_high |= high
        sum_low += _ZERO if waits else low
        sum_high += _ZERO if waits else high
    _note(sum_low, sum_high, all_low, all_high, counts)
    return left


@njit(nogil=True, cache=True)
def _down_wide(waiting: int, most: int, task: Task, room: Room, counts: np.ndarray) -> int:
    """Reduce the pool to at most `most` numbers, 16 steps at a time. Return its new size, or -1 on failure."""
    for _ in range(PASSES):
        waiting = settle(waiting, HIGH_BITS, task, room, counts)
        if waiting <= most:
            return waiting
        counts[BLOCKS] += np.uint64(waiting)
        waiting = _pass_wide(0, waiting, task, room, counts)
    return -1
