"""Code that all CPU variants of verification share: tasks, sums, and the processing of numbers that are too large.

A sweep processes the candidates of a slice of residues in some cells of one block until each is below a floor. Numbers
make 16 shortcut steps at a time, starting at their 24th step. Numbers that are not yet below the floor wait in a pool,
which can mix numbers that have made different numbers of steps.

Limbs: a number in a pool is 2^54 high + low, elsewhere 2^64 high + low.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from jobs.kinds.collatz.bits import lowest, ones
from jobs.kinds.collatz.verify_sieve import C_SHIFT, RHO_SHIFT, Sieve
from jobs.kinds.collatz.wide import LIMB, sixteen_steps

#: Maximum number of numbers in a pool, and space for the candidates of one more residue.
#: A pool contains fewer than 2^10 numbers, so that the sum of their words plus a carry fits in 64 bits.
POOL, ROOM = 704, 264
#: Maximum number of passes of 16 steps per number; the known numbers need at most about 150 passes.
PASSES = 4000
#: Indexes of the words of a counts, in which a sweep adds up its results.
#: The first four groups are vectors of eight words: two sums of final values, and a bitwise OR of all values.
#: The other words are a sum in two 64-bit words, a bitwise OR in three words, and two counts.
SUM_LOW, SUM_HIGH, BITS_LOW, BITS_HIGH, SUM, BITS, CANDIDATES, BLOCKS, WORDS = 0, 8, 16, 24, 32, 34, 37, 38, 40

_ZERO, _ONE, _WORD = np.uint64(0), np.uint64(1), np.uint64(64)
_DIGIT, _DIGIT_MASK = np.uint64(24), np.uint64(2**24 - 1)
_EIGHT, _SIXTEEN, _FORTY, _FORTY_EIGHT = np.uint64(8), np.uint64(16), np.uint64(40), np.uint64(48)
_D_MASK, _C_SHIFT, _C_MASK = np.uint64(2**C_SHIFT - 1), np.uint64(C_SHIFT), np.uint64(31)
_RHO_SHIFT = np.uint64(RHO_SHIFT)
_LIMB, _LIMB_UP = np.uint64(LIMB), np.uint64(64 - LIMB)
#: Maximum number of bits of the top word for which 16 steps fit in three words: 2^38 3^16 + 3^16 < 2^64.
_TOP_BITS = np.uint64(54)


class Task(NamedTuple):
    """Piece of a block to verify: the residues with indexes first..end-1, in the cells whose bits are set."""

    h: Any
    #: Floor: the verification of a number stops once its value is below 2^64 floor_high + floor_low.
    floor_high: Any
    floor_low: Any
    first: Any
    end: Any
    #: Bit mask of the cells to verify, in four words.
    cells: Any
    #: Remainder of the block's first number modulo 81.
    rho: Any


class Room(NamedTuple):
    """Working memory and lookup tables for the verification of pieces."""

    low: Any
    high: Any
    #: The indexes 0..255 as bytes, followed by space for a list of cells.
    places: Any
    steps: Any
    powers: Any
    #: Lookup tables of four and eight steps, and tables for permuting vectors; see `tables` and `quads`.
    four: Any
    eight: Any
    orders: Any


@njit(nogil=True, cache=True)
def unpack(entry: np.uint64, powers: np.ndarray) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Unpack a residue of the sieve into 3^c, d and r mod 81."""
    return powers[(entry >> _C_SHIFT) & _C_MASK], entry & _D_MASK, entry >> _RHO_SHIFT


@njit(nogil=True, cache=True)
def entrance(power: np.uint64, d: np.uint64, h: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the value of a residue after 24 steps in cell 0 of block h, 3^c 2^8 h + d, as words (high, low)."""
    # 2^8 h has digits of 24 bits, and 3^c < 2^39, so no product exceeds 2^63.
    low = power * ((h << _EIGHT) & _DIGIT_MASK) + d
    middle = power * ((h >> _SIXTEEN) & _DIGIT_MASK) + (low >> _DIGIT)
    high = power * (h >> _FORTY) + (middle >> _DIGIT)
    return high >> _SIXTEEN, (high << _FORTY_EIGHT) | ((middle & _DIGIT_MASK) << _DIGIT) | (low & _DIGIT_MASK)


@njit(nogil=True, cache=True)
def finish(high: np.uint64, low: np.uint64, task: Task, room: Room, counts: np.ndarray) -> bool:
    """Perform steps on one number of three 64-bit words until it is below the floor.

    Return False if the number does not fit or needs too many passes.
    """
    steps, powers, top = room.steps, room.powers, _ZERO
    for _ in range(PASSES):
        if not top and (high < task.floor_high or (high == task.floor_high and low < task.floor_low)):
            counts[SUM] += low
            counts[SUM + 1] += high + np.uint64(counts[SUM] < low)
            return True
        if top >> _TOP_BITS:
            return False
        top, high, low = sixteen_steps(top, high, low, steps, powers)
        counts[BLOCKS] += _ONE
        counts[BITS] |= low
        counts[BITS + 1] |= high
        counts[BITS + 2] |= top
    return False


@njit(nogil=True, cache=True)
def finish_cells(
    bits: np.uint64,
    word: int,
    x: tuple[np.uint64, np.uint64],
    power: np.uint64,
    task: Task,
    room: Room,
    counts: np.ndarray,
) -> bool:
    """Verify the candidates of a residue one by one. `x` is the value of the residue in cell 0.

    The candidates are in the cells whose bits are set in `bits`, a word of the bit mask of cells.
    """
    while bits:
        more = power * (np.uint64(word) * _WORD + lowest(bits))
        low = x[1] + more
        if not finish(x[0] + np.uint64(low < more), low, task, room, counts):
            return False
        bits &= bits - _ONE
    return True


@njit(nogil=True, cache=True)
def finish_residue(row: int, task: Task, sieve: Sieve, room: Room, counts: np.ndarray) -> bool:
    """Verify the candidates of a residue one by one, because their values are too large for a pool."""
    power, d, rho = unpack(sieve.packed[row], sieve.powers)
    for word in range(4):
        bits = sieve.masks[row, word] & sieve.threes[rho + task.rho, word] & task.cells[word]
        counts[CANDIDATES] += ones(bits)
        if not finish_cells(bits, word, entrance(power, d, task.h), power, task, room, counts):
            return False
    return True


@njit(nogil=True, cache=True)
def evict(waiting: int, limit: np.uint64, task: Task, room: Room, counts: np.ndarray) -> int:
    """Verify the numbers of a pool that are too large for it. Return the new size of the pool, or -1 on failure.

    A number is too large if its high word exceeds `limit` bits or its low word exceeds 54 bits.
    """
    pool_low, pool_high, left = room.low, room.high, 0
    for j in range(waiting):
        low, high = pool_low[j], pool_high[j]
        pool_low[left], pool_high[left] = low, high
        if not (high >> limit or low >> _LIMB):
            left += 1
        elif not finish(high >> _LIMB_UP, low + (high << _LIMB), task, room, counts):
            return -1
    return left


@njit(nogil=True, cache=True)
def settle(waiting: int, limit: np.uint64, task: Task, room: Room, counts: np.ndarray) -> int:
    """Remove the numbers that became too large from a pool. Return the new size of the pool, or -1 on failure."""
    low, high = _ZERO, _ZERO
    for lane in range(8):
        low |= counts[BITS_LOW + lane]
        high |= counts[BITS_HIGH + lane]
    if not (high >> limit or low >> _LIMB):
        return waiting
    counts[BITS] |= low | high << _LIMB
    counts[BITS + 1] |= high >> _LIMB_UP
    counts[BITS_LOW : BITS_HIGH + 8] = _ZERO
    return evict(waiting, limit, task, room, counts)
