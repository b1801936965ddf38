"""Version of `random.py` compiled by numba, for CPU kernels.

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
    """Compute `random.mix` of a uint64."""
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    return word ^ (word >> _31)


@njit(nogil=True, error_model="numpy", forceinline=True)
def sub(key, number):
    """Compute `random.sub` of a uint64 key and a non-negative integer."""
    return mix(key + _GOLDEN * (np.uint64(number) + _1))
