"""Random draws of the simulation, compiled by numba and computed with integers only.

See the section "Random numbers" of README.md. Never mix uint64 and int64 in one expression: numba would convert the
result to a float.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from jobs.kinds import random
from jobs.kinds.random_cpu import mix, sub
from jobs.kinds.thread import draws

_PLAIN = {"nogil": True, "error_model": "numpy"}


Options: TypeAlias = dict[str, Any]


def _accepted(options: Options) -> bool:
    """Return True if this version of numba supports these options."""
    try:
        njit("int64()", **options)(lambda: 0)
    except (KeyError, TypeError, NumbaError):
        return False
    return True


def _extended(plain: Options, more: Options, accepted: Callable[[Options], bool]) -> Options:
    """Add undocumented numba options to `plain`, or return `plain` if this version does not support them.

    Without the options the code is only slower.
    """
    extended = {**plain, **more}
    return extended if accepted(extended) else plain


def options(accepted: Callable[[Options], bool] = _accepted) -> Options:
    """Return the options with which numba compiles the simulation, without reference counting of arrays.

    The code allocates nothing. Reference counting would take a quarter of the time of the global queues.
    """
    return _extended(_PLAIN, {"_nrt": False}, accepted)


def internal(accepted: Callable[[Options], bool] = _accepted) -> Options:
    """Return the numba options for functions that only compiled code calls, without wrappers for Python and C.

    The wrappers would take a quarter of the compile time.
    """
    return _extended(JIT, {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}, accepted)


JIT = options()
INLINE = {**JIT, "forceinline": True}
INTERNAL = internal()
INTERNAL_INLINE = {**INTERNAL, "forceinline": True}

LAWS = ("fixed", "uniform", "exponential", "hyperexponential", "empirical", "pareto")
FIXED, UNIFORM, EXPONENTIAL, HYPEREXPONENTIAL = range(4)
PARETO = LAWS.index("pareto")

_OFFSPRING = np.uint64(random.offset(draws.OFFSPRING))
_WORK = np.uint64(random.offset(draws.WORK))
_BRANCH = np.uint64(random.offset(draws.BRANCH))
_ARRIVALS = np.uint64(random.offset(draws.ARRIVALS))
_VICTIMS = np.uint64(random.offset(draws.VICTIMS))
_1, _32, _33, _53 = (np.uint64(n) for n in (1, 32, 33, 53))
_LOW_20, _LOW_10 = np.uint64(2**20 - 1), np.uint64(1023)


@intrinsic
def leading_zeros(_context, _word):
    """Return the number of zero bits above the highest set bit of a uint64; 64 for 0."""

    def generate(_target, builder, _signature, arguments):
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def trailing_zeros(_context, _word):
    """Return the number of zero bits below the lowest set bit of a uint64; 64 for 0."""

    def generate(_target, builder, _signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@njit(**INLINE)
def at(index):
    """Convert a non-negative index to unsigned, because numba checks whether signed indexes count from the end."""
    return np.uint64(index)


@njit(**INLINE)
def bin_of(value):
    msb = 63 - leading_zeros(np.uint64(value))
    if msb < 6:
        return value
    return 64 * (msb - 5) + (value >> (msb - 6)) - 64


@njit(**INLINE)
def negative_log(word, logs):
    """Return -ln(U) in units of 2^-24 for U = (word | 1) / 2^64."""
    word |= _1
    zeros = leading_zeros(word)
    word <<= np.uint64(zeros)
    index = np.int64((word >> _53) & _LOW_10)
    fraction = np.int64((word >> _33) & _LOW_20)
    step = (logs[index] - logs[index + 1]) * fraction
    return zeros * logs[0] + logs[index] - ((step + 524288) >> 20)


@njit(**INLINE)
def draw_work(key, law, laws, logs):
    """Draw the work of a thread in ns, at least 1."""
    if law == FIXED:
        return max(1, laws[0])
    word = mix(key + _WORK)
    if law == EXPONENTIAL:
        return max(1, (laws[0] * negative_log(word, logs) + 8388608) >> 24)
    if law == HYPEREXPONENTIAL:
        slow = np.int64(mix(key + _BRANCH) >> _32) >= laws[0]
        mean = laws[2] if slow else laws[1]
        return max(1, (mean * negative_log(word, logs) + 8388608) >> 24)
    if law == PARETO:
        place = negative_log(word, logs)
        index = place >> 20
        return max(1, laws[index] + (((laws[index + 1] - laws[index]) * (place & 1048575)) >> 20))
    high = word >> _32
    if law == UNIFORM:
        return max(1, laws[0] + ((np.int64(high) * laws[1]) >> 32))
    place = np.int64(high) * (laws.shape[0] - 1)
    index = place >> 32
    fraction = (place & 4294967295) >> 10
    return max(1, laws[index] + (((laws[index + 1] - laws[index]) * fraction) >> 22))


@njit(**INLINE)
def draw_children(key, depth, max_depth, values, thresholds):
    if depth >= max_depth:
        return 0
    if values.shape[0] == 1:
        return values[0]
    draw = np.int64(mix(key + _OFFSPRING) >> _32)
    row = depth if thresholds.shape[0] > 1 else 0
    if values.shape[0] == 2:
        return values[np.int64(draw >= thresholds[row, 0])]
    index = 0
    while draw >= thresholds[row, index]:
        index += 1
    return values[index]


@njit(**INLINE)
def interarrival(key, number, mean, logs):
    """Draw the time between the arrivals of root number-1 and root `number`, in the units of the mean."""
    word = sub(mix(key + _ARRIVALS), number)
    return (mean * negative_log(word, logs) + 8388608) >> 24


@njit(**INLINE)
def victim(core, attempt, key, cores):
    """Draw the core from which a steal attempt tries to steal, uniformly from all other cores."""
    draw = sub(mix(key + _VICTIMS) + mix(np.uint64(core)), attempt) >> _32
    other = np.int64((draw * np.uint64(cores - 1)) >> _32)
    return other + 1 if other >= core else other
