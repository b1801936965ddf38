"""Fills the tables of mode `frontier` that decide which numbers of a leaf survive."""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.frontier_rules import JOINS, LOG3, NEGATIVE, ONE, WINDOW

_ZERO, _ONE, _SIX, _SIXTY_THREE = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)
_WINDOW_MASK = np.uint64(2**WINDOW - 1)


@njit(nogil=True, cache=True)
def fill_window(c: int, leaf: int, joins: np.ndarray, window: np.ndarray) -> None:
    """Set a bit for each value modulo 2^WINDOW that no rule drops within WINDOW steps, after c odd steps of `leaf`.

    Bit t stands for the value 3^c t.
    """
    size, powers = 1, np.ones(WINDOW + 1, np.uint64)
    inverse = _ONE
    for i in range(1, WINDOW + 1):
        powers[i] = powers[i - 1] * np.uint64(3)
    for _ in range(c):
        inverse = inverse * np.uint64(0xAAAAAAAAAAAAAAAB)
    stack = np.zeros((2 * WINDOW + 2, 4), np.uint64)
    while size > 0:
        size -= 1
        y, x, k, odds = stack[size, 0], stack[size, 1], stack[size, 2], stack[size, 3]
        if k == WINDOW:
            at = (y * inverse) & _WINDOW_MASK
            window[at >> _SIX] |= _ONE << (at & _SIXTY_THREE)
            continue
        for bit in range(2):
            z, more = x + (powers[odds] if bit else _ZERO), odds
            if z & _ONE:
                z, more = (np.uint64(3) * z + _ONE) >> _ONE, odds + _ONE
            else:
                z >>= _ONE
            known = min(more, np.uint64(JOINS))
            height = (c + np.int64(more)) * LOG3 - (leaf + np.int64(k) + 1) * ONE
            if height + joins[known, z % powers[known]] >= NEGATIVE:
                stack[size, 0] = y | (np.uint64(bit) << k)
                stack[size, 1], stack[size, 2], stack[size, 3] = z, k + _ONE, more
                size += 1
    window[len(window) - 1] = window[0]
