"""Code of mode `frontier` that all CPU variants share: numbers that are followed to their floors.

The floor of n is n with its lowest `shift` bits cleared, or the greatest power of two up to n if that leaves nothing.
Numbers below the floor are smaller than n. A pool stores n / 2^shift, rounded down, with each number, which is
2^52 high + low. Elsewhere, a number consists of words of 64 bits.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from jobs.kinds.collatz import quads, tables, vectors
from jobs.kinds.collatz.bits import lowest
from jobs.kinds.collatz.frontier_rules import INNER, LEAF_BITS, LIMB, floor_shift
from jobs.kinds.collatz.frontier_walk import Leaves, Tables
from jobs.kinds.collatz.wide import multiply_add

#: Numbers of leaves with at most this number of odd steps fit in one word of 52 bits: 64 * 3^NARROW_ODD < 2^52.
NARROW_ODD = 29
#: Numbers of leaves with at most this number of odd steps fit in the two words of a pool: 64 * 3^WIDE_ODD < 2^116.
WIDE_ODD = 69
#: Maximum number of numbers in a pool, and space for the numbers of one more leaf and of one more vector.
POOL, SPACE = 1024, 128
#: Maximum number of numbers above POOL that spill from one pool to the other.
SPILL = 64
#: Maximum number of passes per number; the known numbers need at most about 150 passes.
PASSES = 4000
#: Indexes of the counts that a sweep adds up. The first four are vectors of eight words: sums of the low and the high
#: words of last values, and a bitwise OR of all low and all high words. The others are a sum modulo 2^64, a bitwise OR
#: in three words, the number of survivors, and the number of passes.
LOW_SUMS, HIGH_SUMS, LOW_BITS, HIGH_BITS, SUM, BITS, SURVIVORS, PASSED, COUNTS = 0, 8, 16, 24, 32, 33, 36, 37, 40

_ZERO, _ONE, _SIXTY_THREE = np.uint64(0), np.uint64(1), np.uint64(63)
_NINE, _NINE_MASK, _NINE_UP = np.uint64(9), np.uint64(511), np.uint64(55)
_HALF, _LOW_HALF = np.uint64(32), np.uint64(2**32 - 1)
_LIMB, _LIMB_MASK, _LIMB_UP = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(64 - LIMB)
#: Maximum number of bits of the top word for which 18 steps fit in three words: 2^35 3^18 < 2^64.
_TOP_BITS = np.uint64(53)


class Pool(NamedTuple):
    """Numbers that are not below their floors, with the highest bits of their starts."""

    low: Any
    high: Any
    lead: Any
    #: Depth of the leaves, and number of low bits that a floor clears.
    leaf: Any
    shift: Any
    #: Shift of a high word to the position of its bits in n / 2^shift.
    rise: Any
    #: Lower bound of high words that are above all floors, and are too large for the shift.
    tall: Any


class Room(NamedTuple):
    """Lookup tables and working memory."""

    #: The indexes 0..63 as bytes, followed by space for a list of the numbers of a leaf.
    places: Any
    #: Table of 3^c for each residue modulo 64 after six steps, followed by a table of d, as integers of 16 bits, and by
    #: the mask of a lookup.
    sixes: Any
    #: Table of 3^c + (d << 32) for each residue modulo 2^9 after nine steps.
    nines: Any
    orders: Any


def pool(bits: int) -> Pool:
    """Return an empty pool for a search of all numbers below 2^bits."""
    shift = floor_shift(bits)
    words = (np.zeros(POOL + SPACE, np.uint64) for _ in range(3))
    shifts = bits - LEAF_BITS, shift, LIMB - shift, 1 << min(63 - LIMB + shift, 62)
    return Pool(*words, *map(np.uint64, shifts))


def _packed(words: list[Any]) -> list[int]:
    """Pack integers of 16 bits into integers of 64 bits."""
    return np.array(words, np.uint16).view(np.uint64).tolist()


def room() -> Room:
    """Return lookup tables and working memory for one search."""
    six, nine = ([tables.advance(np.uint64(r), count) for r in range(1 << count)] for count in (6, 9))
    return Room(
        places=np.concatenate([np.arange(64, dtype=np.uint8), np.zeros(192, np.uint8)]),
        sixes=np.array(
            [*_packed([3 ** int(c) for c, _ in six]), *_packed([d for _, d in six]), vectors.SHORT_WORDS], np.uint64
        ),
        nines=np.array([3 ** int(c) + (int(d) << 32) for c, d in nine], np.uint64),
        orders=quads.orders(),
    )


@njit(**INNER)
def eighteen(top: np.uint64, high: np.uint64, low: np.uint64, nines: np.ndarray):
    """Perform 18 shortcut steps on a number of three words."""
    for _ in range(2):
        entry = nines[low & _NINE_MASK]
        power, rest = entry & _LOW_HALF, entry >> _HALF
        rest, low = multiply_add(_ZERO, (low >> _NINE) | (high << _NINE_UP), power, rest)
        rest, high = multiply_add(_ZERO, (high >> _NINE) | (top << _NINE_UP), power, rest)
        top = (top >> _NINE) * power + rest
    return top, high, low


@njit(**INNER)
def finish(
    top: np.uint64,
    high: np.uint64,
    low: np.uint64,
    floor: tuple[np.uint64, np.uint64],
    room: Room,
    counts: np.ndarray,
) -> bool:
    """Follow one number of three words until it is below its floor.

    Return False if the number does not fit or needs too many passes.
    """
    for _ in range(PASSES):
        if not top and (high < floor[0] or (high == floor[0] and low < floor[1])):
            counts[SUM] += low
            return True
        if top >> _TOP_BITS:
            return False
        top, high, low = eighteen(top, high, low, room.nines)
        counts[PASSED] += _ONE
        counts[BITS] |= low
        counts[BITS + 1] |= high
        counts[BITS + 2] |= top
    return False


@njit(**INNER)
def in_limbs(high: np.uint64, low: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Convert a number of two words, with high < 2^52, so that the low word has LIMB bits."""
    return (high << _LIMB_UP) | (low >> _LIMB), low & _LIMB_MASK


@njit(**INNER)
def _floor_of(lead: np.uint64, shift: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the floor as two words that belongs to the highest bits of a number."""
    return (lead >> (_SIXTY_THREE - shift)) >> _ONE, lead << shift


@njit(**INNER)
def _finish_least(i: int, leaves: Leaves, room: Room, counts: np.ndarray) -> bool:
    """Follow the least number of a leaf to the greatest power of two up to it. Return False on failure."""
    high, low = leaves.b_high[i], leaves.b_low[i]
    floor_high, floor_low = _ZERO, _ONE
    word = high or low
    while word > _ONE:
        word >>= _ONE
        floor_low <<= _ONE
    if high:
        floor_high, floor_low = floor_low, _ZERO
    counts[SURVIVORS] += _ONE
    return finish(_ZERO, leaves.x_high[i], leaves.x_low[i], (floor_high, floor_low), room, counts)


@njit(**INNER)
def _finish_tall(i: int, tables: Tables, leaves: Leaves, pool: Pool, room: Room, counts: np.ndarray) -> bool:
    """Follow the numbers of a leaf one by one, because their values do not fit in a pool. Return False on failure."""
    top, high, low, alive, lead = _ZERO, leaves.x_high[i], leaves.x_low[i], leaves.alive[i], leaves.lead[i]
    power_high, power_low = tables.power_high[leaves.c[i]], tables.power_low[leaves.c[i]]
    while alive:
        if alive & _ONE:
            counts[SURVIVORS] += _ONE
            if not finish(top, high, low, _floor_of(lead, pool.shift), room, counts):
                return False
        low += power_low
        more = power_high + np.uint64(low < power_low)
        high += more
        top += np.uint64(high < more)
        lead += _ONE << (pool.leaf - pool.shift)
        alive >>= _ONE
    return True


@njit(**INNER)
def evict(first: int, waiting: int, limit: np.uint64, pool: Pool, room: Room, counts: np.ndarray) -> int:
    """Follow the numbers from index `first` on that are too large for a pool one by one.

    A number is too large if its high word has more than `limit` bits, or its low word more than LIMB bits. Return the
    new size of the pool, or -1 on failure.
    """
    left, pool_low, pool_high, pool_lead = first, pool.low, pool.high, pool.lead
    for i in range(first, waiting):
        low, high, lead = pool_low[i], pool_high[i], pool_lead[i]
        pool_low[left], pool_high[left], pool_lead[left] = low, high, lead
        if not (high >> limit or low >> _LIMB):
            left += 1
            continue
        low += high << _LIMB
        high = (high >> _LIMB_UP) + np.uint64(low < high << _LIMB)
        if not finish(_ZERO, high, low, _floor_of(lead, pool.shift), room, counts):
            return -1
    return left


@njit(**INNER)
def spill(pools: tuple[Pool, Pool], waiting: np.ndarray) -> bool:
    """Move numbers with more than LIMB bits from the pool for narrow numbers to the pool for wide numbers.

    Return True if the pool for wide numbers became full, so that some can be left.
    """
    wide, narrow = pools[0], pools[1]
    wide_low, wide_high, wide_lead, narrow_low, narrow_lead = wide.low, wide.high, wide.lead, narrow.low, narrow.lead
    into, left = waiting[0], 0
    for i in range(waiting[1]):
        low, lead = narrow_low[i], narrow_lead[i]
        if low >> _LIMB and into < POOL + SPILL:
            wide_low[into], wide_high[into], wide_lead[into] = low & _LIMB_MASK, low >> _LIMB, lead
            into += 1
        else:
            narrow_low[left], narrow_lead[left] = low, lead
            left += 1
    waiting[0], waiting[1] = into, left
    return into >= POOL + SPILL


@njit(**INNER)
def prepare(count: int, tables: Tables, leaves: Leaves, pool: Pool, room: Room, counts: np.ndarray) -> bool:
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
        lead[i] = (b_low[i] >> shift) | ((b_high[i] << (_SIXTY_THREE - shift)) << _ONE)
        if not lead[i] and alive[i] & _ONE:
            if not _finish_least(i, leaves, room, counts):
                return False
            alive[i] &= ~_ONE
        if odd[i] > WIDE_ODD and alive[i]:
            if not _finish_tall(i, tables, leaves, pool, room, counts):
                return False
            alive[i] = _ZERO
    return True


@njit(**INNER)
def enter(i: int, count: int, waiting: int, is_narrow: bool, tables: Tables, leaves: Leaves, pool: Pool, counts):
    """Add the numbers of leaves until the pool is full. Return (next leaf, size of the pool, OR of the high words)."""
    x_high, x_low, odd, leads, all_alive = leaves.x_high, leaves.x_low, leaves.c, leaves.lead, leaves.alive
    all_high, all_low, pool_low, pool_high, pool_lead = (
        tables.power_high,
        tables.power_low,
        pool.low,
        pool.high,
        pool.lead,
    )
    before, step, every = waiting, pool.leaf - pool.shift, _ZERO
    while i < count and waiting <= POOL:
        c, alive, lead = odd[i], all_alive[i], leads[i]
        if (c <= NARROW_ODD) == is_narrow:
            high, low = in_limbs(x_high[i], x_low[i])
            power_high, power_low = in_limbs(all_high[c], all_low[c])
            while alive:
                a = lowest(alive)
                alive &= alive - _ONE
                x = low + a * power_low
                more = high + a * power_high + (x >> _LIMB)
                pool_low[waiting] = x & _LIMB_MASK
                pool_high[waiting] = more
                pool_lead[waiting] = lead + (a << step)
                every |= more
                waiting += 1
        i += 1
    counts[SURVIVORS] += np.uint64(waiting - before)
    return i, waiting, every


@njit(**INNER)
def find_large(waiting: int, is_narrow: bool, limit: np.uint64, pool: Pool, counts: np.ndarray) -> bool:
    """Return True if a number of the pool has too many bits for the next pass. Add all numbers to the OR in `counts`.

    The last value of a number needs no place in the OR, because it is less than the start, and earlier values are not.
    """
    every_low, every_high, pool_low, pool_high = _ZERO, _ZERO, pool.low, pool.high
    for j in range(waiting):
        every_low |= pool_low[j]
    if not is_narrow:
        for j in range(waiting):
            every_high |= pool_high[j]
    counts[LOW_BITS] |= every_low
    counts[HIGH_BITS] |= every_high
    return (every_low >> _LIMB) | (every_high >> limit) != _ZERO
