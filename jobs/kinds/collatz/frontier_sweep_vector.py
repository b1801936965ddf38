"""Follows the surviving numbers of leaves to their floors on CPUs with AVX-512, eight numbers at once."""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.bits import ones
from jobs.kinds.collatz.frontier_pools import NARROW_ODD, Pool, evict
from jobs.kinds.collatz.frontier_walk import Leaves, Tables
from jobs.kinds.collatz.vector_steps import eight_wide, sixteen_narrow, tables
from jobs.kinds.collatz.vectors import (
    add,
    below,
    both,
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
    up,
    widen,
)
from jobs.kinds.collatz.vectors import down as shift_down
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
from jobs.kinds.collatz.verify_sweep_vector import HIGH_BITS, LISTED
from jobs.kinds.collatz.wide import LIMB, in_limbs

_EIGHT = np.uint64(8)
_LIMB, _LIMB_MASK = np.uint64(LIMB), np.uint64(2**LIMB - 1)


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
        i, waiting = _enter(i, count, waiting, is_narrow, tables, leaves, pool, room, counts)
        if waiting > POOL:
            waiting = down(waiting, POOL, is_narrow, pool, task, room, counts)
    return waiting


@njit(nogil=True, cache=True)
def _enter(
    i: int,
    count: int,
    waiting: int,
    is_narrow: bool,
    tables: Tables,
    leaves: Leaves,
    pool: Pool,
    room: Room,
    counts: np.ndarray,
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
    places, steps, limb, mask = room.places, splat(step), splat(_LIMB), splat(_LIMB_MASK)
    every = load_bytes(places, 0)
    while i < count and waiting <= POOL:
        c, alive = odd[i], all_alive[i]
        if (c <= NARROW_ODD) == is_narrow:
            store_bytes(places, LISTED, squeeze_bytes(alive, every))
            found, lead = np.int64(ones(alive)), splat(leads[i])
            limbs, powers = in_limbs(x_high[i], x_low[i]), in_limbs(all_high[c], all_low[c])
            low, high, power_low, power_high = splat(limbs[1]), splat(limbs[0]), splat(powers[1]), splat(powers[0])
            for j in range(0, found, 8):
                a = widen(places, LISTED + j)
                x = add(low, mul(a, power_low))
                if is_narrow:
                    store(pool_low, waiting + j, x)
                else:
                    store(pool_low, waiting + j, both(x, mask))
                    store(pool_high, waiting + j, add(add(high, mul(a, power_high)), shift_down(x, limb)))
                store(pool_lead, waiting + j, add(lead, up(a, steps)))
            waiting += found
        i += 1
    counts[CANDIDATES] += np.uint64(waiting - before)
    return i, waiting


@njit(nogil=True, cache=True)
def down(waiting: int, most: int, is_narrow: bool, pool: Pool, task: Task, room: Room, counts: np.ndarray) -> int:
    """Reduce a pool to at most `most` numbers, 16 steps at a time. Return its new size, or -1 on failure."""
    for _ in range(PASSES):
        if _has_large(waiting, is_narrow, pool):
            waiting = evict(waiting, np.uint64(0) if is_narrow else HIGH_BITS, pool, task, room, counts)
        if waiting <= most:
            return waiting
        counts[BLOCKS] += np.uint64(waiting)
        waiting = _pass_narrow(waiting, pool, room, counts) if is_narrow else _pass_wide(waiting, pool, room, counts)
    return -1


@njit(nogil=True, cache=True)
def _has_large(waiting: int, is_narrow: bool, pool: Pool) -> bool:
    """Return True if a number of the pool has too many bits for the next 16 steps."""
    every, words = np.uint64(0), pool.low if is_narrow else pool.high
    for j in range(waiting):
        every |= words[j]
    if is_narrow:
        return every >> _LIMB != 0
    return every >> HIGH_BITS != 0


@njit(nogil=True, cache=True)
def _pass_narrow(waiting: int, pool: Pool, room: Room, counts: np.ndarray) -> int:
    """Perform 16 steps on the numbers of the pool, which have one word, and return its new size."""
    four, left, low_up, pool_low, pool_lead = tables(room.four), 0, splat(pool.low_up), pool.low, pool.lead
    stopped, every = load(counts, SUM_LOW), load(counts, BITS_LOW)
    at, end, step = widen(room.places, 0), splat(np.uint64(waiting)), splat(_EIGHT)
    for j in range(0, waiting, 8):
        x, lead = sixteen_narrow(load(pool_low, j), four), load(pool_lead, j)
        valid, stops = below(at, end), below(x, up(lead, low_up))
        every = either(every, keep(valid, x))
        stopped = add(stopped, keep(valid & stops, x))
        store(pool_low, left, squeeze(valid & ~stops, x))
        store(pool_lead, left, squeeze(valid & ~stops, lead))
        left += np.int64(ones(valid & ~stops))
        at = add(at, step)
    store(counts, BITS_LOW, every)
    _carry(stopped, load(counts, SUM_HIGH), counts)
    return left


@njit(nogil=True, cache=True)
def _pass_wide(waiting: int, pool: Pool, room: Room, counts: np.ndarray) -> int:
    """Perform 16 steps on the numbers of the pool, which have two words, and return its new size."""
    four, left, mask = tables(room.four), 0, splat(_LIMB_MASK)
    pool_low, pool_high, pool_lead = pool.low, pool.high, pool.lead
    low_up, high_up, high_down = splat(pool.low_up), splat(pool.high_up), splat(pool.high_down)
    at, end, step = widen(room.places, 0), splat(np.uint64(waiting)), splat(_EIGHT)
    sums = load(counts, SUM_LOW), load(counts, SUM_HIGH)
    every = load(counts, BITS_LOW), load(counts, BITS_HIGH)
    for j in range(0, waiting, 8):
        lead = load(pool_lead, j)
        floor_low, floor_high = both(up(lead, low_up), mask), shift_down(up(lead, high_up), high_down)
        xl, xh = eight_wide(load(pool_low, j), load(pool_high, j), four)
        xl, xh = eight_wide(xl, xh, four)
        valid = below(at, end)
        stops = below(xh, floor_high) | (same(xh, floor_high) & below(xl, floor_low))
        every = either(every[0], keep(valid, xl)), either(every[1], keep(valid, xh))
        sums = add(sums[0], keep(valid & stops, xl)), add(sums[1], keep(valid & stops, xh))
        store(pool_low, left, squeeze(valid & ~stops, xl))
        store(pool_high, left, squeeze(valid & ~stops, xh))
        store(pool_lead, left, squeeze(valid & ~stops, lead))
        left += np.int64(ones(valid & ~stops))
        at = add(at, step)
    store(counts, BITS_LOW, every[0])
    store(counts, BITS_HIGH, every[1])
    _carry(sums[0], sums[1], counts)
    return left


@njit(nogil=True, cache=True)
def _carry(low, high, counts: np.ndarray) -> None:
    """Carry the low words of sums into the high words, and store the sums in `counts`."""
    store(counts, SUM_LOW, both(low, splat(_LIMB_MASK)))
    store(counts, SUM_HIGH, add(high, shift_down(low, splat(_LIMB))))
