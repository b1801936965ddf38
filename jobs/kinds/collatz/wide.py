"""Computes exact trajectories with two 64-bit words per number.

These functions process single numbers, and numbers that the block kernels cannot process.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.tables import C_SHIFT, LOW_BITS, STEP_BITS, Lookup

#: Number of bits of the low word in vectors and pools; 16 steps then fit in 64 bits: 2^38 3^16 + 3^16 < 2^64.
LIMB = 54

_LIMB, _LIMB_MASK, _LIMB_UP = np.uint64(LIMB), np.uint64(2**LIMB - 1), np.uint64(64 - LIMB)
_ZERO = np.uint64(0)
_ONE, _THREE, _SIXTY_THREE = np.uint64(1), np.uint64(3), np.uint64(63)
_HALF, _LOW32 = np.uint64(32), np.uint64(2**32 - 1)
_STEP, _STEP_MASK, _STEP_UP = np.uint64(STEP_BITS), np.uint64(2**STEP_BITS - 1), np.uint64(64 - STEP_BITS)
_C_SHIFT, _D_MASK = np.uint64(C_SHIFT), np.uint64(2**C_SHIFT - 1)
_LOW = np.uint64(2**LOW_BITS)
#: Upper bound of x for which 3x+1 fits in one 64-bit word.
_ONE_LIMB = np.uint64(2**62)
#: Upper bound of the high word of x for which 3x+1 fits in two 64-bit words.
_TWO_LIMBS = np.uint64(2**62)
#: Maximum x for which 16 steps at once fit in one 64-bit word: 2^38 * 3^16 + 3^16 < 2^64.
SAFE = np.uint64(2**54)
#: Upper bound of the high word for which 16 steps at once fit in two 64-bit words: 2^38 * 3^16 + 3^16 < 2^64.
_BLOCK_LIMBS = np.uint64(2**54)


@njit(nogil=True, cache=True)
def multiply_add(high: np.uint64, low: np.uint64, factor: np.uint64, add: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Multiply a number of two words by a factor and add a number, both below 2^32. The result must fit."""
    bottom = (low & _LOW32) * factor + add
    top = (low >> _HALF) * factor + (bottom >> _HALF)
    return high * factor + (top >> _HALF), (top << _HALF) | (bottom & _LOW32)


@njit(nogil=True, cache=True)
def exceeds(high: np.uint64, low: np.uint64, other_high: np.uint64, other_low: np.uint64) -> bool:
    """Return True if the first number of two words exceeds the second."""
    return high > other_high or (high == other_high and low > other_low)


@njit(nogil=True, cache=True)
def walk(high: np.uint64, low: np.uint64) -> tuple[int, np.uint64, np.uint64]:
    """Compute a trajectory step by step, and return its delay and the high and low words of its peak.

    The delay is -1 if a value exceeds two words.
    """
    delay = np.int64(0)
    peak_high, peak_low = high, low
    while high or low != _ONE:
        if not high and low < _ONE_LIMB:
            delay, low, most = _walk_one_limb(delay, low)
            if exceeds(np.uint64(0), most, peak_high, peak_low):
                peak_high, peak_low = np.uint64(0), most
            continue
        delay += 1
        if low & _ONE:
            if high >= _TWO_LIMBS:
                return -1, peak_high, peak_low
            high, low = multiply_add(high, low, _THREE, _ONE)
            if exceeds(high, low, peak_high, peak_low):
                peak_high, peak_low = high, low
        else:
            low = (low >> _ONE) | (high << _SIXTY_THREE)
            high >>= _ONE
    return delay, peak_high, peak_low


@njit(nogil=True, cache=True)
def _walk_one_limb(delay: int, x: np.uint64) -> tuple[int, np.uint64, np.uint64]:
    """Perform steps until x is 1 or 3x+1 can exceed 64 bits. Return (delay, value, maximum value)."""
    most = x
    while x != _ONE and x < _ONE_LIMB:
        odd = x & _ONE
        up = _THREE * x + _ONE
        if odd:
            most = max(most, up)
        x = (up if odd else x) >> _ONE
        delay += 1 + np.int64(odd)
    return delay, x, most


@njit(nogil=True, cache=True)
def descend(high: np.uint64, low: np.uint64, lookup: Lookup) -> tuple[int, np.uint64, np.uint64]:
    """Compute a trajectory 16 steps at a time, and return its delay and the maximum of the values in between.

    The number must be at least 2^16. The maximum consists of a high and a low word. The delay is -1 if a value exceeds
    two words.
    """
    steps, delays, powers = lookup.steps, lookup.delays, lookup.powers
    delay = np.int64(0)
    most_high, most_low = high, low
    while high or low >= _LOW:
        if high >= _TWO_LIMBS:
            return -1, most_high, most_low
        if high >= _BLOCK_LIMBS:
            odd = low & _ONE
            if odd:
                high, low = multiply_add(high, low, _THREE, _ONE)
            low = (low >> _ONE) | (high << _SIXTY_THREE)
            high >>= _ONE
            delay += 1 + np.int64(odd)
        elif high or low > SAFE:
            entry = np.uint64(steps[low & _STEP_MASK])
            c = entry >> _C_SHIFT
            low = (low >> _STEP) | (high << _STEP_UP)
            high >>= _STEP
            high, low = multiply_add(high, low, powers[c], entry & _D_MASK)
            delay += STEP_BITS + np.int64(c)
        else:
            delay, low, most = _descend_one_limb(delay, low, steps, powers)
            if not most_high and most > most_low:
                most_low = most
        if exceeds(high, low, most_high, most_low):
            most_high, most_low = high, low
    return delay + np.int64(delays[low]), most_high, most_low


@njit(nogil=True, cache=True)
def _descend_one_limb(
    delay: int, x: np.uint64, steps: np.ndarray, powers: np.ndarray
) -> tuple[int, np.uint64, np.uint64]:
    """Perform 16 steps at a time until x is below 2^LOW_BITS or too large for 64 bits.

    Return (delay, value, maximum value).
    """
    most = x
    while x >= _LOW and x <= SAFE:
        entry = np.uint64(steps[x & _STEP_MASK])
        c = entry >> _C_SHIFT
        x = (x >> _STEP) * powers[c] + (entry & _D_MASK)
        most = max(most, x)
        delay += STEP_BITS + np.int64(c)
    return delay, x, most


@njit(nogil=True, cache=True)
def sixteen_steps(
    top: np.uint64, high: np.uint64, low: np.uint64, steps: np.ndarray, powers: np.ndarray
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Perform 16 shortcut steps on a number of three 64-bit words with top < 2^54. The steps can run through 1."""
    entry = np.uint64(steps[low & _STEP_MASK])
    power = powers[entry >> _C_SHIFT]
    rest, low = multiply_add(_ZERO, (low >> _STEP) | (high << _STEP_UP), power, entry & _D_MASK)
    over, high = multiply_add(_ZERO, (high >> _STEP) | (top << _STEP_UP), power, rest)
    return (top >> _STEP) * power + over, high, low


@njit(nogil=True, cache=True)
def in_limbs(high: np.uint64, low: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Convert a number of two 64-bit words, with high < 2^54, so that the low word has LIMB bits."""
    return (high << _LIMB_UP) | (low >> _LIMB), low & _LIMB_MASK
