"""Performs steps n/2 or (3n+1)/2 on eight numbers at once, with lookup tables of four steps in registers."""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.vectors import add, both, down, load, mul, pick, splat, up
from jobs.kinds.collatz.wide import LIMB

_FOUR, _EIGHT = np.uint64(4), np.uint64(8)
_LIMB, _LIMB_MASK, _PART = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(LIMB - 8)


@njit(nogil=True, cache=True)
def tables(four):
    """Load the lookup table of four steps into four registers.

    Two registers contain 3^c of the residues modulo 16, and two contain d.
    """
    return load(four, 0), load(four, 8), load(four, 16), load(four, 24)


@njit(nogil=True, cache=True)
def four_steps(x, four):
    """Perform four shortcut steps on eight numbers x < 2^61."""
    power, d = pick(four[0], x, four[1]), pick(four[2], x, four[3])
    return add(mul(down(x, splat(_FOUR)), power), d)


@njit(nogil=True, cache=True)
def sixteen_narrow(x, four):
    """Perform sixteen shortcut steps on eight numbers x <= 2^54."""
    for _ in range(4):
        x = four_steps(x, four)
    return x


@njit(nogil=True, cache=True)
def eight_wide(low, high, four):
    """Perform eight shortcut steps on eight numbers of two words each, with high words below 2^51.

    The low word determines the steps.
    """
    power = pick(four[0], low, four[1])
    low = four_steps(low, four)
    high = mul(high, mul(power, pick(four[0], low, four[1])))
    low = add(four_steps(low, four), both(up(high, splat(_PART)), splat(_LIMB_MASK)))
    return both(low, splat(_LIMB_MASK)), add(down(high, splat(_EIGHT)), down(low, splat(_LIMB)))
