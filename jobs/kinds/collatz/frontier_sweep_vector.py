"""Follows the surviving numbers of leaves to their floors on CPUs with AVX-512, eight numbers at once.

One lookup in registers performs six steps: they map x to 3^c (x >> 6) + d, where 3^c and d depend on x modulo 64.
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
    NARROW_ODD,
    PASSED,
    PASSES,
    POOL,
    SURVIVORS,
    Pool,
    Room,
    evict,
    find_large,
    in_limbs,
    prepare,
    spill,
)
from jobs.kinds.collatz.frontier_rules import INNER, LIMB
from jobs.kinds.collatz.frontier_walk import LEAVES, Leaves, Tables, look_up, walk
from jobs.kinds.collatz.vectors import (
    add,
    below,
    both,
    either,
    keep,
    load,
    load_bytes,
    mul,
    pick_short,
    product,
    splat,
    squeeze,
    squeeze_bytes,
    store,
    store_bytes,
    up,
    widen,
)
from jobs.kinds.collatz.vectors import down as shift_down

#: Index in `places` at which the list of a leaf's numbers starts.
LISTED = 64

_ZERO, _ONE, _SIX, _EIGHT, _ALL = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(8), np.uint64(255)
_LIMB, _LIMB_MASK = np.uint64(LIMB), np.uint64(2**LIMB - 1)
_HALF, _PASS, _PASS_MASK = np.uint64(32), np.uint64(18), np.uint64(2**18 - 1)
_PART, _TOP_PART = np.uint64(LIMB - 18), np.uint64(32 - 18)
#: Maximum number of bits of a number's high word for which 18 steps fit in one word: 2^52 3^18 / 2^18 < 2^63.
_MOST_BITS = np.uint64(52)


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
        i, waiting[size], high = _enter(i, count, before, is_narrow, tables, leaves, pool, room, counts)
        if is_narrow:
            _start_narrow(before, waiting[1], pool, room, counts)
            if waiting[1] > POOL and not _down_narrow(POOL, pools, waiting, room, counts):
                return False
        else:
            if high >> _MOST_BITS:
                waiting[0] = evict(before, waiting[0], _MOST_BITS, pool, room, counts)
            _start_wide(before, waiting[0], pool, room, counts)
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
def _enter(
    i: int, count: int, waiting: int, is_narrow: bool, tables: Tables, leaves: Leaves, pool: Pool, room: Room, counts
):
    """Add the numbers of leaves until the pool is full. Return (next leaf, size of the pool, OR of the high words)."""
    x_high, x_low, odd, leads = leaves.x_high, leaves.x_low, leaves.c, leaves.lead
    all_high, all_low, pool_low, pool_high, pool_lead = (
        tables.power_high,
        tables.power_low,
        pool.low,
        pool.high,
        pool.lead,
    )
    before, all_alive, step = waiting, leaves.alive, splat(pool.leaf - pool.shift)
    places, limb, mask, every_high = room.places, splat(_LIMB), splat(_LIMB_MASK), _ZERO
    every = load_bytes(places, 0)
    while i < count and waiting <= POOL:
        c, alive = odd[i], all_alive[i]
        if (c <= NARROW_ODD) == is_narrow:
            store_bytes(places, LISTED, squeeze_bytes(alive, every))
            found, lead = np.int64(ones(alive)), splat(leads[i])
            if is_narrow:
                low, power_low = splat(x_low[i]), splat(all_low[c])
                for j in range(0, found, 8):
                    a = widen(places, LISTED + j)
                    store(pool_low, waiting + j, add(low, mul(a, power_low)))
                    store(pool_lead, waiting + j, add(lead, up(a, step)))
            else:
                limbs, powers = in_limbs(x_high[i], x_low[i]), in_limbs(all_high[c], all_low[c])
                low, high, power_low, power_high = splat(limbs[1]), splat(limbs[0]), splat(powers[1]), splat(powers[0])
                every_high |= limbs[0] + powers[0] * np.uint64(64)
                for j in range(0, found, 8):
                    a = widen(places, LISTED + j)
                    x = add(low, mul(a, power_low))
                    store(pool_low, waiting + j, both(x, mask))
                    store(pool_high, waiting + j, add(add(high, mul(a, power_high)), shift_down(x, limb)))
                    store(pool_lead, waiting + j, add(lead, up(a, step)))
            waiting += found
        i += 1
    counts[SURVIVORS] += np.uint64(waiting - before)
    return i, waiting, every_high


@njit(**INNER)
def _six(x, sixes):
    """Perform six shortcut steps on eight numbers. Return their values, and 3^c of each."""
    power, d = pick_short(sixes[0], x, sixes[1], sixes[4]), pick_short(sixes[2], x, sixes[3], sixes[4])
    return add(mul(shift_down(x, splat(_SIX)), power), d), power


@njit(**INNER)
def _tables(sixes):
    return load(sixes, 0), load(sixes, 8), load(sixes, 16), load(sixes, 24), sixes[32]


@njit(**INNER)
def _eighteen_narrow(x, sixes):
    """Perform 18 shortcut steps on eight numbers x < 2^53."""
    return _six(_six(_six(x, sixes)[0], sixes)[0], sixes)[0]


@njit(**INNER)
def _eighteen_wide(low, high, sixes):
    """Perform 18 shortcut steps on eight numbers of two words each. The low word determines the steps."""
    low, power = _six(low, sixes)
    low, second = _six(low, sixes)
    low, third = _six(low, sixes)
    power = product(product(power, second), third)
    middle, top = product(high, power), product(shift_down(high, splat(_HALF)), power)
    low = add(low, up(both(middle, splat(_PASS_MASK)), splat(_PART)))
    high = add(add(shift_down(middle, splat(_PASS)), up(top, splat(_TOP_PART))), shift_down(low, splat(_LIMB)))
    return both(low, splat(_LIMB_MASK)), high


@njit(**INNER)
def _start_narrow(first: int, waiting: int, pool: Pool, room: Room, counts: np.ndarray) -> None:
    """Perform the first 18 steps of numbers of one word, which do not lead below the floor."""
    sixes, pool_low = _tables(room.sixes), pool.low
    for j in range(first, waiting, 8):
        store(pool_low, j, _eighteen_narrow(load(pool_low, j), sixes))
    counts[PASSED] += np.uint64(waiting - first)


@njit(**INNER)
def _start_wide(first: int, waiting: int, pool: Pool, room: Room, counts: np.ndarray) -> None:
    """Perform the first 18 steps of numbers of two words, which do not lead below the floor."""
    sixes, pool_low, pool_high = _tables(room.sixes), pool.low, pool.high
    for j in range(first, waiting, 8):
        low, high = _eighteen_wide(load(pool_low, j), load(pool_high, j), sixes)
        store(pool_low, j, low)
        store(pool_high, j, high)
    counts[PASSED] += np.uint64(max(waiting - first, 0))


@njit(**INNER)
def _pass_narrow(waiting: int, pool: Pool, room: Room, counts: np.ndarray) -> int:
    """Perform 18 steps on the numbers of the pool, which have one word, and return its new size."""
    sixes, left, shift, pool_low, pool_lead = _tables(room.sixes), 0, splat(pool.shift), pool.low, pool.lead
    stopped = load(counts, LOW_SUMS)
    # Zeros after the last number stop at once, and add nothing.
    store(pool_low, waiting, splat(_ZERO))
    store(pool_lead, waiting, splat(_ONE))
    for j in range(0, waiting, 8):
        x, lead = _eighteen_narrow(load(pool_low, j), sixes), load(pool_lead, j)
        stops = below(shift_down(x, shift), lead)
        stopped = add(stopped, keep(stops, x))
        store(pool_low, left, squeeze(stops ^ _ALL, x))
        store(pool_lead, left, squeeze(stops ^ _ALL, lead))
        left += np.int64(ones(stops ^ _ALL))
    store(counts, LOW_SUMS, stopped)
    return left


@njit(**INNER)
def _pass_wide(waiting: int, pool: Pool, room: Room, counts: np.ndarray) -> int:
    """Perform 18 steps on the numbers of the pool, which have two words, and return its new size."""
    sixes, left, pool_low, pool_high, pool_lead = _tables(room.sixes), 0, pool.low, pool.high, pool.lead
    shift, rise, tall = splat(pool.shift), splat(pool.rise), splat(pool.tall)
    low_sum, high_sum = load(counts, LOW_SUMS), load(counts, HIGH_SUMS)
    # Zeros after the last number stop at once, and add nothing.
    store(pool_low, waiting, splat(_ZERO))
    store(pool_high, waiting, splat(_ZERO))
    store(pool_lead, waiting, splat(_ONE))
    for j in range(0, waiting, 8):
        low, high = _eighteen_wide(load(pool_low, j), load(pool_high, j), sixes)
        lead = load(pool_lead, j)
        stops = below(either(up(high, rise), shift_down(low, shift)), lead) & below(high, tall)
        low_sum, high_sum = add(low_sum, keep(stops, low)), add(high_sum, keep(stops, high))
        store(pool_low, left, squeeze(stops ^ _ALL, low))
        store(pool_high, left, squeeze(stops ^ _ALL, high))
        store(pool_lead, left, squeeze(stops ^ _ALL, lead))
        left += np.int64(ones(stops ^ _ALL))
    store(counts, LOW_SUMS, low_sum)
    store(counts, HIGH_SUMS, high_sum)
    return left
