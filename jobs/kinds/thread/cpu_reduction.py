"""Exact sums of the measurements of replicas, in functions compiled by numba.

A value is split into four limbs of 21 bits, whose products fit int64. Sums of limb products stay below 2^63 for up to
MOST_ROWS rows. The caller must reset the sums after that many rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.random_cpu import mix, sub
from jobs.kinds.thread import cpu_layout as layout
from jobs.kinds.thread import rows
from jobs.kinds.thread.cpu_draws import INTERNAL, JIT, bin_of

MOST_ROWS = 65_536
LIMBS = 4
LIMB_BITS = 21
_LIMB = 2**LIMB_BITS - 1
#: Pairs (i, j) of limbs with i <= j, in the order of the sums of squares.
PAIRS = tuple((i, j) for i in range(LIMBS) for j in range(i, LIMBS))

#: Names of the (makespan, replica) pairs in `examples`, in order.
EXAMPLES = ("fastest", "slowest", "deadlocked")

_ROW = len(rows.ROW)
_COLUMNS = len(rows.COLUMNS)
_SPREAD = np.array([rows.COLUMNS.index(name) for name in rows.SPREAD])
_FACTORS = np.array([rows.COLUMNS.index(name) for pair in rows.PRODUCTS for name in pair])
_SHIFT = rows.RATIO_BITS
_SMALL = 2 ** (62 - _SHIFT)


@njit(**JIT)
def ratio(over, under):
    """Return floor(over * 2^20 / under) for 0 <= over and 0 < under, both below 2^62."""
    if over < _SMALL:
        return (over << _SHIFT) // under
    quotient = over // under
    rest = over - quotient * under
    for _ in range(_SHIFT):
        rest <<= 1
        quotient <<= 1
        if rest >= under:
            rest -= under
            quotient += 1
    return quotient


@njit(**JIT)
def wide_ratio(high, low, under):
    """Return floor((high * 2^62 + low) * 2^20 / under); the quotient must fit int64."""
    if high == 0:
        return ratio(low, under)
    quotient = high // under
    rest = high - quotient * under
    for position in range(61, -1 - _SHIFT, -1):
        bit = (low >> position) & 1 if position >= 0 else 0
        rest = (rest << 1) + bit
        quotient <<= 1
        if rest >= under:
            rest -= under
            quotient += 1
    return quotient


@njit(**INTERNAL)
def derive(row, aside, cores, values):
    """Copy the measurements of a replica into `values`, and append their ratios."""
    for column in range(_ROW):
        values[column] = row[column]
    makespan, span = row[layout.MAKESPAN], row[layout.LONGEST]
    alone = row[layout.WORK] + row[layout.OVERHEAD]
    values[_ROW] = ratio(alone, makespan)
    values[_ROW + 1] = ratio(alone, span)
    values[_ROW + 2] = ratio(row[layout.BUSY], cores * makespan)
    values[_ROW + 3] = ratio(row[layout.OVERHEAD], alone)
    values[_ROW + 4] = ratio(cores * makespan, alone + (cores - 1) * span)
    values[_ROW + 5] = wide_ratio(aside[layout.READY_HIGH], aside[layout.READY_LOW], makespan)
    values[_ROW + 6] = ratio(row[layout.THREADS] * 1_000_000_000, makespan)


@njit(**INTERNAL)
def digest(cell, replica, row, aside, by_depth):
    """Return the hash of a replica's measurements, like `rows.digest`.

    Sums of two words are hashed by their low 64 bits.
    """
    word = sub(mix(np.uint64(cell)), replica)
    for column in range(_ROW):
        value = np.uint64(row[column])
        if column == layout.WAITED:
            value += np.uint64(aside[layout.HIGH_WAITED]) << np.uint64(62)
        if column == layout.SOJOURN:
            value += np.uint64(aside[layout.HIGH_SOJOURN]) << np.uint64(62)
        word = sub(word, value)
    for depth in range(by_depth.shape[0]):
        word = sub(word, by_depth[depth])
    return word


@njit(**INTERNAL)
def violations(row, again, cores, greedy, counts):
    alone = row[layout.WORK] + row[layout.OVERHEAD]
    makespan, span = row[layout.MAKESPAN], row[layout.LONGEST]
    if row[layout.BUSY] != alone + again:
        counts[0] += 1
    if makespan < max((alone + cores - 1) // cores, span):
        counts[1] += 1
    if greedy and makespan > (alone + (cores - 1) * span) // cores:
        counts[2] += 1


@njit(**INTERNAL)
def add_wide(low, high, limbs, sums, squares):
    """Add the value high * 2^62 + low to a sum, and its square to a sum of squares."""
    limbs[0] = low & _LIMB
    limbs[1] = (low >> LIMB_BITS) & _LIMB
    limbs[2] = (low >> (2 * LIMB_BITS)) + ((high & 1) << 20)
    limbs[3] = high >> 1
    place = 0
    for i in range(LIMBS):
        sums[i] += limbs[i]
        for j in range(i, LIMBS):
            squares[place] += limbs[i] * limbs[j]
            place += 1


@njit(**INTERNAL)
def remember(replica, makespan, outcome, examples):
    """Record the first replica with the shortest makespan, with the longest makespan, and with a deadlock.

    Each example is a pair (makespan, replica); replica is -1 if there is none. Replicas arrive in ascending order.
    """
    if outcome == layout.DEADLOCKED:
        if examples[5] < 0:
            examples[4], examples[5] = makespan, replica
        return
    if examples[1] < 0 or makespan < examples[0]:
        examples[0], examples[1] = makespan, replica
    if examples[3] < 0 or makespan > examples[2]:
        examples[2], examples[3] = makespan, replica


@njit(**INTERNAL)
def accumulate(replica, row, aside, by_depth, cores, greedy, values, limbs, totals):
    """Add the measurements of one replica to `totals`, the arrays created by `empty`."""
    sums, squares, least, most, products, spread, depth_sum, depth_squares, outcomes, broken, stuck_at, examples = (
        totals
    )
    outcomes[row[layout.OUTCOME]] += 1
    remember(replica, row[layout.MAKESPAN], row[layout.OUTCOME], examples)
    if row[layout.OUTCOME] == layout.DEADLOCKED:
        stuck_at[bin_of(row[layout.MAKESPAN])] += 1
        add_wide(row[layout.MAKESPAN], 0, limbs, sums[_COLUMNS], squares[_COLUMNS])
        return
    derive(row, aside, cores, values)
    violations(row, aside[layout.AGAIN], cores, greedy, broken)
    for column in range(_COLUMNS):
        value = values[column]
        least[column] = min(least[column], value)
        most[column] = max(most[column], value)
        high = 0
        if column == layout.WAITED:
            high = aside[layout.HIGH_WAITED]
        elif column == layout.SOJOURN:
            high = aside[layout.HIGH_SOJOURN]
        add_wide(value, high, limbs, sums[column], squares[column])
        for product in range(_FACTORS.shape[0] // 2):
            if column == _FACTORS[2 * product]:
                for i in range(LIMBS):
                    products[product, i] += limbs[i] * values[_FACTORS[2 * product + 1]]
    for place in range(_SPREAD.shape[0]):
        spread[place, bin_of(values[_SPREAD[place]])] += 1
    for depth in range(by_depth.shape[0]):
        depth_sum[depth] += by_depth[depth]
        depth_squares[depth] += by_depth[depth] * by_depth[depth]


def empty(depths):
    """Allocate the arrays for sums over replicas. The last row of the sums is for the times of deadlocks."""
    return (
        np.zeros((_COLUMNS + 1, LIMBS), np.int64),
        np.zeros((_COLUMNS + 1, len(PAIRS)), np.int64),
        np.full(_COLUMNS, rows.NONE, np.int64),
        np.zeros(_COLUMNS, np.int64),
        np.zeros((len(rows.PRODUCTS), LIMBS), np.int64),
        np.zeros((len(rows.SPREAD), rows.BINS), np.int64),
        np.zeros(depths, np.int64),
        np.zeros(depths, np.int64),
        np.zeros(len(rows.OUTCOMES), np.int64),
        np.zeros(len(rows.INVARIANTS), np.int64),
        np.zeros(rows.BINS, np.int64),
        np.full(2 * len(EXAMPLES), -1, np.int64),
    )


def partial(totals, replicas, digest_sum, waits, sojourns):
    """Convert arrays of sums to the partial result of one simulated machine, in Python integers."""
    sums, squares, least, most, products, spread, depth_sum, depth_squares, outcomes, broken, stuck_at, examples = (
        totals
    )
    kept = [rows.COLUMNS.index(name) for name in rows.EXTREMES]
    *numbers, stuck = [_number(row) for row in sums.tolist()]
    *powers, stuck_squared = [_square(row) for row in squares.tolist()]
    pairs = zip(EXAMPLES, examples.reshape(-1, 2).tolist(), strict=True)
    return {
        "replicas": replicas,
        "outcomes": outcomes.tolist(),
        "sum": numbers,
        "sumsq": powers,
        "min": least[kept].tolist(),
        "max": most[kept].tolist(),
        "products": [_number(row) for row in products.tolist()],
        "spread": [_sparse(row) for row in spread],
        "wait": _sparse(waits),
        "sojourn": _sparse(sojourns),
        "depth_sum": depth_sum.tolist(),
        "depth_sumsq": depth_squares.tolist(),
        "violations": broken.tolist(),
        "stuck": [stuck, stuck_squared],
        "stuck_at": _sparse(stuck_at),
        "examples": {name: example for name, example in pairs if example[1] >= 0},
        "digest": digest_sum,
    }


def _number(limbs):
    return sum(limb << LIMB_BITS * place for place, limb in enumerate(limbs))


def _square(products):
    return sum(
        (product if i == j else 2 * product) << LIMB_BITS * (i + j)
        for (i, j), product in zip(PAIRS, products, strict=True)
    )


def _sparse(counts):
    """Return the nonempty bins as a list [bin, count, bin, count, ...]."""
    used = np.flatnonzero(counts)
    return np.stack((used, counts[used]), axis=1).ravel().tolist()
