"""Check each rule of Collatz mode `frontier` on all numbers below 2^28: `make frontier-exhaustive` (minutes).

For each dropped number, the check finds the smaller number that leads to the same value, and follows both. It also
counts the survivors of our rules, and of the published rules (arXiv 2602.10466), which drop fewer numbers.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import argparse
import sys

import numpy as np
from numba import njit

from jobs.kinds.collatz import frontier, frontier_plan
from jobs.kinds.collatz.frontier_rules import (
    BASE_BITS,
    DOUBLINGS,
    JOINS,
    LEAF_BITS,
    LOG3,
    NEGATIVE,
    ONE,
    START_JOINS,
    WINDOW,
    join,
)

DESCENT, START, WALK_JOINS, WINDOW_JOINS = 0, 1, 2, 3
NAMES = ("descent", "joins of the start", "joins on the way to a leaf", "joins within the window")
#: Survivors of the published rules with 6 bits per leaf and a window of 24 steps, counted with the author's program.
PUBLISHED = {30: 1_497_704, 32: 5_447_149, 36: 66_320_448, 40: 888_966_177}
#: Number of steps that the published window decides, and number of odd steps above the least of a leaf from which the
#: published program uses no window.
_PUBLISHED_WINDOW, _PUBLISHED_TABLES = 24, 8


def join_tables() -> tuple[np.ndarray, np.ndarray]:
    """Return `join` for each number of known odd steps and residue, and the doublings of its first step, or -1."""
    heights, first = (np.full((JOINS + 1, 3**JOINS), fill, np.int64) for fill in (0, -1))
    for known in range(1, JOINS + 1):
        for residue in range(3**known):
            heights[known, residue] = join(known, residue)
            value = residue
            for doublings in range(DOUBLINGS + 1) if heights[known, residue] else ():
                if value % 3 == 2:
                    rest = join(known - 1, (2 * value - 1) // 3 % 3 ** (known - 1))
                    if (doublings + 1) * ONE - LOG3 + rest == heights[known, residue]:
                        first[known, residue] = doublings
                        break
                value *= 2
    return heights, first


@njit(nogil=True)
def _step(x: int) -> int:
    return (3 * x + 1) >> 1 if x & 1 else x >> 1


@njit(nogil=True)
def _is_below(c: int, k: int) -> bool:
    """Return True if 3^c < 2^k."""
    return c * LOG3 - k * ONE < NEGATIVE


@njit(nogil=True)
def _joins_smaller(n: int, value: int, known: int, first: np.ndarray) -> bool:
    """Return True if the backward steps of a rule lead to a smaller number, which leads to the value."""
    m, steps = value, 0
    while first[known, m % 3**known] >= 0:
        doublings = first[known, m % 3**known]
        m = ((m << (doublings + 1)) - 1) // 3
        steps += doublings + 1
        known -= 1
    x = m
    for _ in range(steps):
        x = _step(x)
    return 1 <= m < n and x == value


@njit(nogil=True)
def _find_drop(rule: int, n: int, leaf: int, heights: np.ndarray) -> tuple[bool, int, int]:
    """Return whether a rule drops n, the value at which it does, and the number of known odd steps."""
    if rule == START:
        return heights[START_JOINS, n % 3**START_JOINS] < NEGATIVE, n, START_JOINS
    x, c, at_leaf, known = n, 0, 0, 0
    for k in range(1, leaf + WINDOW + 1):
        c += x & 1
        x = _step(x)
        if _is_below(c, k):
            return rule == DESCENT, x, 0
        known = min(c - at_leaf, JOINS)
        is_in_turn = rule == (WALK_JOINS if k <= leaf else WINDOW_JOINS)
        if is_in_turn and c * LOG3 - k * ONE + heights[known, x % 3**known] < NEGATIVE:
            return True, x, known
        if k == leaf:
            at_leaf = c
    return False, x, known


@njit(nogil=True)
def check(rule: int, end: int, bits: int, heights: np.ndarray, first: np.ndarray) -> tuple[int, int]:
    """Check one rule on all numbers below `end`. Return how many it drops, and the first wrong one, or -1."""
    dropped = 0
    for n in range(2**BASE_BITS, end):
        is_dropped, value, known = _find_drop(rule, n, bits - LEAF_BITS, heights)
        dropped += is_dropped
        is_right = value < n if rule == DESCENT else _joins_smaller(n, value, known, first)
        if is_dropped and not is_right:
            return dropped, n
    return dropped, -1


@njit(nogil=True)
def count_survivors(bits: int, heights: np.ndarray) -> int:
    """Count the numbers below 2^bits that no rule of this project drops."""
    leaf, survivors = bits - LEAF_BITS, 0
    for n in range(2**bits):
        if heights[START_JOINS, n % 3**START_JOINS] < NEGATIVE:
            continue
        x, c, at_leaf, survives = n, 0, 0, True
        for k in range(1, leaf + WINDOW + 1):
            c += x & 1
            x = _step(x)
            known = min(c - at_leaf, JOINS)
            if c * LOG3 - k * ONE + heights[known, x % 3**known] < NEGATIVE:
                survives = False
                break
            if k == leaf:
                at_leaf = c
        survivors += survives
    return survivors


@njit(nogil=True)
def _is_published_survivor(n: int, leaf: int, descent: bool, odd_even_even: bool, twos: bool) -> bool:
    """Return True if no published rule for values after the first two steps drops n, which is 3 modulo 4."""
    # waits: 1 if two even steps drop the number after its odd steps, 2 if one of them has been made
    x, c, evens, waits = (9 * n + 5) // 4, 2, 0, 0
    for k in range(2, leaf + _PUBLISHED_WINDOW):
        if k == leaf:
            if (waits == 2 and not x & 1) or (waits == 1 and x & 3 == 0):
                return False
            if c > leaf * ONE // LOG3 + _PUBLISHED_TABLES:
                return True
            evens = waits = 0
        if x & 1:
            waits = np.int64(waits == 1 or (odd_even_even and _is_below(c, k + 1)))
            c, evens = c + 1, 0
        else:
            # The published window ends one step early for this rule.
            if waits == 2 and k < leaf + _PUBLISHED_WINDOW - 1:
                return False
            waits, evens = 2 * (waits == 1), evens + 1
        x = _step(x)
        joins = twos and evens >= 2 and evens % 2 == 0 and _is_below(c - 1, k)
        if joins or (descent and _is_below(c, k + 1)):
            return False
    return True


@njit(nogil=True)
def count_published(bits: int, descent: bool, odd_even_even: bool, twos: bool, nines: bool) -> int:
    """Count the numbers below 2^bits, 3 modulo 4, that the chosen published rules do not drop.

    descent: 3^c < 2^k. twos: the value after an even number of even steps is 2 modulo 3, and its smaller predecessor
    drops it. odd_even_even: a value that one even step would make smaller than the start is followed by odd steps and
    two even steps. nines: the start has a smaller predecessor because of its residue modulo 9.
    """
    survivors = 0
    for n in range(3, 2**bits, 4):
        if not (nines and n % 9 in (2, 4, 5, 8)):
            survivors += _is_published_survivor(n, bits - LEAF_BITS, descent, odd_even_even, twos)
    return survivors


def main(bits: int, published: list[int]) -> int:
    """Run all checks, print their results, and return the exit status."""
    heights, first = join_tables()
    is_right = True
    for rule, name in enumerate(NAMES):
        dropped, wrong = check(rule, 2**bits, bits, heights, first)
        is_right &= wrong < 0
        print(
            f"{name}: {dropped:,} numbers below 2^{bits} dropped, "
            + (f"{wrong} WRONGLY" if wrong >= 0 else "all rightly")
        )
    cut = frontier_plan.division(bits)
    survivors = count_survivors(bits, heights)
    for module in frontier.all_sweeps():
        _, partial = frontier.search_units(cut, frontier.Search(bits, module), 0, cut.units, lambda _: True)
        found = sum(row[1] for row in partial["blocks"])
        is_right &= found == survivors
        print(f"{module.__name__}: {found:,} survivors, plain iteration: {survivors:,}")
    for size in published:
        found = count_published(size, True, True, True, True)
        is_right &= found == PUBLISHED[size]
        print(f"published rules at N = {size}: {found:,} survivors, published program: {PUBLISHED[size]:,}")
    print("all equal" if is_right else "error: a rule or a count is wrong; see above")
    return 0 if is_right else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.exhaustive.frontier_sieves")
    parser.add_argument("--bits", type=int, default=28, help="check all numbers below 2^BITS")
    parser.add_argument("--published", type=int, nargs="*", default=[30, 32], choices=PUBLISHED, help="N to count")
    arguments = parser.parse_args()
    sys.exit(main(arguments.bits, arguments.published))
