"""Follows the surviving numbers of leaves to their floors on CPUs with AVX2, four numbers at once.

One table lookup performs nine steps: they map x to p (x >> 9) + d, where p = 3^c and d depend on x modulo 2^9. Each
half of a pass is a separate loop, because loading a value right after its store would stall the CPU.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.bits import ones
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
    spill,
)
from jobs.kinds.collatz.frontier_rules import INNER, LIMB
from jobs.kinds.collatz.frontier_walk import LEAVES, Leaves, Tables, look_up, walk
from jobs.kinds.collatz.quads import (
    add,
    below_signed,
    bits,
    both,
    either,
    load,
    lookup_nine_at,
    product,
    splat,
    squeeze,
    store,
    up,
)
from jobs.kinds.collatz.quads import down as shift_down

_ZERO, _ONE, _FOUR, _NINE, _HALF = np.uint64(0), np.uint64(1), np.uint64(4), np.uint64(9), np.uint64(32)
_NINE_HALF, _LIMB, _LIMB_MASK, _PART = np.uint64(41), np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(LIMB - 9)
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
        if not (
            _sweep(count, True, tables, leaves, pools, waiting, room, counts)
            and _sweep(count, False, tables, leaves, pools, waiting, room, counts)
        ):
            return size, count, -1
        count = 0
        if heads == 0:
            size, count, heads = walk(stack, size, count, np.int64(pools[0].leaf), tables, leaves, tall)
    if is_last and size == 0 and heads == 0:
        is_done = _down_narrow(0, pools, waiting, room, counts) and _down_wide(0, pools, waiting, room, counts)
        heads = 0 if is_done else -1
    return size, count, heads


@njit(**INNER)
def _sweep(
    count: int,
    is_narrow: bool,
    tables: Tables,
    leaves: Leaves,
    pools: tuple[Pool, Pool],
    waiting: np.ndarray,
    room: Room,
    counts: np.ndarray,
) -> bool:
    """Add the numbers of `count` leaves to the pool of their size. Return False on failure."""
    i, size = np.int64(0), np.int64(is_narrow)
    pool = pools[size]
    while i < count:
        before = waiting[size]
        i, waiting[size], high = enter(i, count, before, is_narrow, tables, leaves, pool, counts)
        if is_narrow:
            _start(before, waiting[1], True, pool, room, counts)
            if waiting[1] > POOL and not _down_narrow(POOL, pools, waiting, room, counts):
                return False
        else:
            if high >> _MOST_BITS:
                waiting[0] = evict(before, waiting[0], _MOST_BITS, pool, room, counts)
            _start(before, waiting[0], False, pool, room, counts)
            if waiting[0] < 0 or (waiting[0] > POOL and not _down_wide(POOL, pools, waiting, room, counts)):
                return False
    return True


@njit(**INNER)
def _down_narrow(most: int, pools: tuple[Pool, Pool], waiting: np.ndarray, room: Room, counts: np.ndarray) -> bool:
    """Reduce the pool for narrow numbers to at most `most` numbers, 18 steps at a time. Return False on failure."""
    for _ in range(PASSES):
        if find_large(waiting[1], True, _ZERO, pools[1], counts):
            while spill(pools, waiting):
                if not _down_wide(POOL // 2, pools, waiting, room, counts):
                    return False
        if waiting[1] <= most:
            return True
        counts[PASSED] += np.uint64(waiting[1])
        waiting[1] = _pass_narrow(waiting[1], pools[1], room, counts)
    return False


@njit(**INNER)
def _down_wide(most: int, pools: tuple[Pool, Pool], waiting: np.ndarray, room: Room, counts: np.ndarray) -> bool:
    """Reduce the pool for wide numbers to at most `most` numbers, 18 steps at a time. Return False on failure."""
    for _ in range(PASSES):
        if find_large(waiting[0], False, _MOST_BITS, pools[0], counts):
            waiting[0] = evict(0, waiting[0], _MOST_BITS, pools[0], room, counts)
        if waiting[0] <= most:
            return waiting[0] >= 0
        counts[PASSED] += np.uint64(waiting[0])
        waiting[0] = _pass_wide(waiting[0], pools[0], room, counts)
    return False


@njit(**INNER)
def _nine(x, entry):
    """Perform nine shortcut steps on four numbers x < 2^58. `entry` is p + (d << 32) of x modulo 2^9."""
    more = up(product(shift_down(x, splat(_NINE_HALF)), entry), splat(_HALF))
    return add(add(product(shift_down(x, splat(_NINE)), entry), more), shift_down(entry, splat(_HALF)))


@njit(**INNER)
def _nine_wide(low, high, entry):
    """Perform nine shortcut steps on four numbers of two words each. The low word keeps its carry."""
    high = add(product(high, entry), up(product(shift_down(high, splat(_HALF)), entry), splat(_HALF)))
    return add(_nine(low, entry), both(up(high, splat(_PART)), splat(_LIMB_MASK))), shift_down(high, splat(_NINE))


@njit(**INNER)
def _half_narrow(first: int, waiting: int, pool: Pool, room: Room) -> None:
    """Perform nine steps on numbers of one word."""
    nines, pool_low = room.nines, pool.low
    for j in range(first, waiting, 4):
        store(pool_low, j, _nine(load(pool_low, j), lookup_nine_at(nines, pool_low, j)))


@njit(**INNER)
def _half_wide(first: int, waiting: int, is_second: bool, pool: Pool, room: Room) -> None:
    """Perform nine steps on numbers of two words. In the first half, the low words keep their carries."""
    nines, pool_low, pool_high = room.nines, pool.low, pool.high
    for j in range(first, waiting, 4):
        low, high = _nine_wide(load(pool_low, j), load(pool_high, j), lookup_nine_at(nines, pool_low, j))
        if is_second:
            low, high = _carried(low, high)
        store(pool_low, j, low)
        store(pool_high, j, high)


@njit(**INNER)
def _carried(low, high):
    """Add the carry of each low word to its high word."""
    return both(low, splat(_LIMB_MASK)), add(high, shift_down(low, splat(_LIMB)))


@njit(**INNER)
def _start(first: int, waiting: int, is_narrow: bool, pool: Pool, room: Room, counts: np.ndarray) -> None:
    """Perform the first 18 steps of numbers, which do not lead below the floor."""
    for half in range(2):
        if is_narrow:
            _half_narrow(first, waiting, pool, room)
        else:
            _half_wide(first, waiting, half == 1, pool, room)
    counts[PASSED] += np.uint64(max(waiting - first, 0))


@njit(**INNER)
def _pass_narrow(waiting: int, pool: Pool, room: Room, counts: np.ndarray) -> int:
    """Perform 18 steps on the numbers of the pool, which have one word, and return its new size."""
    nines, partitions, left, shift = room.nines, room.orders.partitions, _ZERO, splat(pool.shift)
    pool_low, pool_lead, stopped = pool.low, pool.lead, load(counts, LOW_SUMS)
    # Zeros after the last number stop at once, and add nothing.
    store(pool_low, waiting, splat(_ZERO))
    store(pool_lead, waiting, splat(_ONE))
    _half_narrow(0, waiting, pool, room)
    for j in range(0, waiting, 4):
        x, lead = _nine(load(pool_low, j), lookup_nine_at(nines, pool_low, j)), load(pool_lead, j)
        stops = below_signed(shift_down(x, shift), lead)
        stopped = add(stopped, both(stops, x))
        gone = bits(stops)
        store(pool_low, left, squeeze(partitions, gone, x))
        store(pool_lead, left, squeeze(partitions, gone, lead))
        left += _FOUR - ones(gone)
    store(counts, LOW_SUMS, stopped)
    return np.int64(left)


@njit(**INNER)
def _pass_wide(waiting: int, pool: Pool, room: Room, counts: np.ndarray) -> int:
    """Perform 18 steps on the numbers of the pool, which have two words, and return its new size."""
    nines, partitions, left = room.nines, room.orders.partitions, _ZERO
    pool_low, pool_high, pool_lead = pool.low, pool.high, pool.lead
    shift, rise, tall = splat(pool.shift), splat(pool.rise), splat(pool.tall)
    low_sum, high_sum = load(counts, LOW_SUMS), load(counts, HIGH_SUMS)
    # Zeros after the last number stop at once, and add nothing.
    store(pool_low, waiting, splat(_ZERO))
    store(pool_high, waiting, splat(_ZERO))
    store(pool_lead, waiting, splat(_ONE))
    _half_wide(0, waiting, False, pool, room)
    for j in range(0, waiting, 4):
        low, high = _nine_wide(load(pool_low, j), load(pool_high, j), lookup_nine_at(nines, pool_low, j))
        low, high = _carried(low, high)
        lead = load(pool_lead, j)
        is_low = below_signed(either(up(high, rise), shift_down(low, shift)), lead)
        stops = both(is_low, below_signed(high, tall))
        low_sum, high_sum = add(low_sum, both(stops, low)), add(high_sum, both(stops, high))
        gone = bits(stops)
        store(pool_low, left, squeeze(partitions, gone, low))
        store(pool_high, left, squeeze(partitions, gone, high))
        store(pool_lead, left, squeeze(partitions, gone, lead))
        left += _FOUR - ones(gone)
    store(counts, LOW_SUMS, low_sum)
    store(counts, HIGH_SUMS, high_sum)
    return np.int64(left)
