"""Statistics of whole blocks of 2^k numbers, one tail per residue class, and of single numbers.

Why this is exact is told in the README of this folder. In short: a block h covers n = 2^k h + r for all r < 2^k.
After k shortcut steps n has become 3^c h + d, the same number for all r of a class, so delays need one tail a class.
Classes come in the order of their least residue, so what exceeds all before it is a record at that residue.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.collatz.tables import C_SHIFT, D_SHIFT, LOW_BITS, STEP_BITS, WEIGHT_SHIFT
from jobs.kinds.collatz.wide import descend, exceeds, walk

#: What a call answers when something does not fit; 0 is well.
TOO_WIDE, TOO_LONG, TOO_MANY_RECORDS = 1, 2, 3
#: Length of the histogram and of the lists of records. No delay or list below 2^53 comes near.
DELAYS = 4096
#: Classes whose state is in the first-level cache at a time.
TILE = 2048
#: From a boundary value x no value of the next 16 steps exceeds 2 * 1.5^16 * (x + 1) < 2^11 (x + 1).
GROWTH_BITS = 11

_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
_STEP, _STEP_MASK = np.uint64(STEP_BITS), np.uint64(2**STEP_BITS - 1)
_C_SHIFT, _D_MASK = np.uint64(C_SHIFT), np.uint64(2**C_SHIFT - 1)
_CLASS_C, _CLASS_D = np.uint64(2**D_SHIFT - 1), np.uint64(2 ** (WEIGHT_SHIFT - D_SHIFT) - 1)
_D_SHIFT, _WEIGHT_SHIFT = np.uint64(D_SHIFT), np.uint64(WEIGHT_SHIFT)
_LOW = np.uint64(2**LOW_BITS)
#: A block step from at most this stays below 2^64: 2^38 * 3^16 + 3^16 < 2^64.
_SAFE = np.uint64(2**54)
_GROWTH, _GROWTH_UP = np.uint64(GROWTH_BITS), np.uint64(64 - GROWTH_BITS)


@njit(nogil=True, cache=True)
def _note_delay(n: np.uint64, delay: int, found: np.ndarray, sizes: np.ndarray) -> None:
    """Appends a delay record if this is one; numbers come ascending."""
    size = sizes[0]
    if size == 0 or delay > found[size - 1, 1]:
        found[size, 0], found[size, 1] = n, delay
        sizes[0] = size + 1


@njit(nogil=True, cache=True)
def _note_path(n: np.uint64, high: np.uint64, low: np.uint64, found: np.ndarray, sizes: np.ndarray) -> None:
    """Appends a path record if this is one; numbers come ascending, except those that cannot be records."""
    size = sizes[1]
    if size == 0 or exceeds(high, low, found[size - 1, 1], found[size - 1, 2]):
        found[size, 0], found[size, 1], found[size, 2] = n, high, low
        sizes[1] = size + 1


@njit(nogil=True, cache=True)
def singles(
    start: np.uint64, end: np.uint64, histogram: np.ndarray, by_delay: np.ndarray, by_path: np.ndarray, sizes: np.ndarray
) -> int:
    """Numbers start..end-1 one after the other, every step of each."""
    n = start
    while n < end:
        delay, high, low = walk(_ZERO, n)
        if delay < 0:
            return TOO_WIDE
        if delay >= DELAYS:
            return TOO_LONG
        if max(sizes[0], sizes[1]) >= DELAYS:
            return TOO_MANY_RECORDS
        histogram[delay] += _ONE
        _note_delay(n, delay, by_delay, sizes)
        _note_path(n, high, low, by_path, sizes)
        n += _ONE
    return 0


@njit(nogil=True, cache=True)
def climb(
    start: np.uint64, end: np.uint64, high: np.uint64, low: np.uint64, by_path: np.ndarray, sizes: np.ndarray
) -> np.uint64:
    """Notes path records from start on until one reaches (high, low); the first number not looked at."""
    n = start
    while n < end:
        size = sizes[1]
        if size >= DELAYS or (size and not exceeds(high, low, by_path[size - 1, 1], by_path[size - 1, 2])):
            break
        delay, peak_high, peak_low = walk(_ZERO, n)
        if delay < 0:
            break
        _note_path(n, peak_high, peak_low, by_path, sizes)
        n += _ONE
    return n


@njit(nogil=True, cache=True)
def _reach(by_path: np.ndarray, sizes: np.ndarray, walked: bool) -> tuple[np.uint64, np.uint64]:
    """(high, low): from no boundary value up to it can the next 16 steps exceed the greatest peak so far."""
    if walked:
        return _ALL, _ALL
    high, low = by_path[sizes[1] - 1, 1], by_path[sizes[1] - 1, 2]
    low = (low >> _GROWTH) | (high << _GROWTH_UP)
    high >>= _GROWTH
    return high - np.uint64(low == _ZERO), low - _ONE


@njit(nogil=True, cache=True)
def block(
    h: np.uint64,
    bits: int,
    packed: np.ndarray,
    first: np.ndarray,
    steps: np.ndarray,
    delays: np.ndarray,
    powers: np.ndarray,
    walked: bool,
    histogram: np.ndarray,
    by_delay: np.ndarray,
    by_path: np.ndarray,
    sizes: np.ndarray,
) -> int:
    """The 2^bits numbers of block h >= 1.

    Unless `walked` says that the path records of the block are already noted, the greatest peak noted must be at
    least LOW_PEAK and 2 * 3^bits * (h + 1), which bounds what the first `bits` steps reach.
    """
    lane_x, lane_steps = np.empty(TILE, np.uint64), np.empty(TILE, np.uint32)
    live = np.empty(TILE, np.uint16)
    safe_h = np.empty(bits + 1, np.uint64)
    for c in range(bits + 1):
        safe_h[c] = _ALL // powers[c] - _ONE
    base = h << np.uint64(bits)
    for start in range(0, len(packed), TILE):
        count = min(TILE, len(packed) - start)
        reach_high, reach_low = _reach(by_path, sizes, walked)
        limit = min(_SAFE, _SAFE if reach_high else reach_low)
        span = limit - _LOW
        alive = 0
        for i in range(count):
            entry = packed[start + i]
            c = entry & _CLASS_C
            x = powers[c] * h + ((entry >> _D_SHIFT) & _CLASS_D)
            x = x if h <= safe_h[c] else _ALL
            lane_x[i] = x
            lane_steps[i] = np.uint32(bits) + np.uint32(c)
            live[alive] = i
            alive += x - _LOW <= span
        while alive:
            left = 0
            for j in range(alive):
                i = live[j]
                x = lane_x[i]
                entry = np.uint64(steps[x & _STEP_MASK])
                c = entry >> _C_SHIFT
                x = (x >> _STEP) * powers[c] + (entry & _D_MASK)
                lane_x[i] = x
                lane_steps[i] += np.uint32(_STEP + c)
                live[left] = i
                left += x - _LOW <= span
            alive = left
        for i in range(count):
            x = lane_x[i]
            delay = np.int64(lane_steps[i])
            n = base + np.uint64(first[start + i])
            if x < _LOW:
                delay += delays[x]
            else:
                rest, high, low = descend(_ZERO, x if x != _ALL else n, steps, delays, powers)
                if rest < 0:
                    return TOO_WIDE
                delay = rest if x == _ALL else delay + rest
                if exceeds(high, low, reach_high, reach_low):
                    if sizes[1] >= DELAYS:
                        return TOO_MANY_RECORDS
                    delay, high, low = walk(_ZERO, n)
                    if delay < 0:
                        return TOO_WIDE
                    _note_path(n, high, low, by_path, sizes)
                    reach_high, reach_low = _reach(by_path, sizes, walked)
            if delay >= DELAYS:
                return TOO_LONG
            histogram[delay] += packed[start + i] >> _WEIGHT_SHIFT
            if sizes[0] == 0 or delay > by_delay[sizes[0] - 1, 1]:
                if sizes[0] >= DELAYS:
                    return TOO_MANY_RECORDS
                _note_delay(n, delay, by_delay, sizes)
    return 0
