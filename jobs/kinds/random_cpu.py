"""SplitMix64 random numbers for CPU kernels: the functions of `random.py`, compiled by numba.

Never mix uint64 and int64 in one expression: numba would convert the result to a float.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds import random

_GOLDEN, _FIRST, _SECOND = np.uint64(random.GOLDEN), np.uint64(random.FIRST_FACTOR), np.uint64(random.SECOND_FACTOR)
_1, _27, _30, _31 = (np.uint64(number) for number in (1, 27, 30, 31))


@njit(nogil=True, error_model="numpy", forceinline=True)
def mix(word):
    """Apply the SplitMix64 finalizer to a uint64, like `random.mix`."""
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    return word ^ (word >> _31)


@njit(nogil=True, error_model="numpy", forceinline=True)
def sub(key, number):
    """Return the random number of a uint64 key with a non-negative index, like `random.sub`."""
    return mix(key + _GOLDEN * (np.uint64(number) + _1))
