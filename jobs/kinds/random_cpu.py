"""`random.py` compiled by numba, for kernels.

uint64 and int64 must never meet in one expression: numba would make it a float.
"""

# mypy: ignore-errors
# numba types these functions, by rules that mypy does not know: int and int64 are one type

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds import random

_GOLDEN, _FIRST, _SECOND = np.uint64(random.GOLDEN), np.uint64(random.FIRST_FACTOR), np.uint64(random.SECOND_FACTOR)
_1, _27, _30, _31 = (np.uint64(number) for number in (1, 27, 30, 31))


@njit(nogil=True, error_model="numpy", forceinline=True)
def mix(word):
    """`random.mix` of a uint64."""
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    return word ^ (word >> _31)


@njit(nogil=True, error_model="numpy", forceinline=True)
def sub(key, number):
    """`random.sub` of a uint64 and any integer from 0."""
    return mix(key + _GOLDEN * (np.uint64(number) + _1))
