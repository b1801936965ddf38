"""Lookup tables that replace many steps of the 3n+1 map by one multiplication and one addition.

For n = 2^k h + r, k shortcut steps lead to 3^c h + d, where c and d depend only on r. numba builds the tables on first
use. They are kept in memory, and slow ones are also cached on disk.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from jobs.kinds import table_cache

#: Number of shortcut steps that one table lookup performs.
STEP_BITS = 16
#: Numbers below 2^LOW_BITS are looked up in a table of delays.
#: LOW_BITS must be at least STEP_BITS, so that no lookup of several steps runs through 1.
LOW_BITS = 17
#: Maximum value in the trajectories of all numbers below 2^LOW_BITS, reached by 113383.
LOW_PEAK = 2_482_111_348
#: Number of fractional bits of an entry of `ends`, which is delay + log3(n) rounded down.
#: With 7 fractional bits, an entry of `ends` fits in 16 bits, and the table takes 256 KB.
LOG_BITS = 7
#: Number of unused entries at the end of a table, because vectors are loaded beyond the last entry.
PADDING = 8
#: Bit positions of d and of the number of residues in a packed residue class, and of c in a packed step.
D_SHIFT, WEIGHT_SHIFT, C_SHIFT = 5, 44, 26

_ONE, _THREE = np.uint64(1), np.uint64(3)


class Lookup(NamedTuple):
    """Lookup tables for computing trajectories."""

    #: Table of d + (c << 26) for each residue modulo 2^16 after 16 shortcut steps.
    steps: Any
    #: Delay + logarithm (`ends`) and delay (`delays`) of each number below 2^17; the entries of 0 are unused.
    ends: Any
    delays: Any
    #: Powers 3^0 .. 3^31.
    powers: Any
    #: Table of 3^c for each residue modulo 16 after four shortcut steps, followed by a table of d.
    four: Any
    #: Table of 3^c + (d << 32) for each residue modulo 2^8 after eight shortcut steps.
    eight: Any


class Groups(NamedTuple):
    """Residue classes: residues modulo 2^bits that reach the same value, ordered by their smallest residue."""

    #: Table of c + (d << 5) + (number of residues << 44) for each class.
    packed: Any
    #: Smallest residue of each class.
    first: Any


@njit(nogil=True, cache=True)
def advance(r: np.uint64, steps: int) -> tuple[np.uint64, np.uint64]:
    """Perform shortcut steps from r, and return the number of odd steps and the resulting value.

    The steps can run through 1.
    """
    c = np.uint64(0)
    for _ in range(steps):
        if r & _ONE:
            r = (_THREE * r + _ONE) >> _ONE
            c += _ONE
        else:
            r >>= _ONE
    return c, r


@njit(nogil=True, cache=True)
def _steps(bits: int) -> np.ndarray:
    table = np.empty(1 << bits, np.uint32)
    for r in range(1 << bits):
        c, d = advance(np.uint64(r), bits)
        table[r] = d | c << np.uint64(C_SHIFT)
    return table


@njit(nogil=True, cache=True)
def _delays(bits: int) -> np.ndarray:
    """Return a table of the delays of all numbers 1 <= n < 2^bits."""
    table = np.zeros(1 << bits, np.uint32)
    for n in range(2, 1 << bits):
        x = np.uint64(n)
        delay = 0
        while x >= np.uint64(n):
            delay += 1
            if x & _ONE:
                x = _THREE * x + _ONE
            else:
                x >>= _ONE
        table[n] = delay + table[x]
    return table


@njit(nogil=True, cache=True)
def _groups(bits: int, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the residue classes modulo 2^bits with a hash table. Return them in the order of their smallest residue."""
    slots = np.full(1 << (bits - 1), -1, np.int32)
    mask = np.uint64((1 << (bits - 1)) - 1)
    keys = np.empty(1 << (bits - 1), np.uint64)
    first = np.empty(1 << (bits - 1), np.uint32)
    classes = 0
    for r in range(1 << bits):
        c, d = _advance_by_table(np.uint64(r), bits, steps)
        key = d << np.uint64(D_SHIFT) | c
        slot = (key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(65 - bits)
        while slots[slot] >= 0 and keys[slots[slot]] & np.uint64((1 << WEIGHT_SHIFT) - 1) != key:
            slot = (slot + _ONE) & mask
        if slots[slot] < 0:
            slots[slot] = classes
            keys[classes] = key
            first[classes] = r
            classes += 1
        keys[slots[slot]] += np.uint64(1 << WEIGHT_SHIFT)
    return keys[:classes].copy(), first[:classes].copy()


@njit(nogil=True, cache=True)
def _advance_by_table(r: np.uint64, bits: int, steps: np.ndarray) -> tuple[np.uint64, np.uint64]:
    """Perform shortcut steps from r like `advance`, with a table lookup for the first 16 steps."""
    if bits < STEP_BITS:
        return advance(r, bits)
    entry = np.uint64(steps[r & np.uint64((1 << STEP_BITS) - 1)])
    c = entry >> np.uint64(C_SHIFT)
    d = entry & np.uint64((1 << C_SHIFT) - 1)
    power = _ONE
    for _ in range(c):
        power *= _THREE
    more, end = advance((r >> np.uint64(STEP_BITS)) * power + d, bits - STEP_BITS)
    return c + more, end


@lru_cache
def lookup() -> Lookup:
    powers = np.array([3**c for c in range(32)], np.uint64)
    logs = np.log(np.maximum(1, np.arange(1 << LOW_BITS))) / np.log(3.0) * 2**LOG_BITS
    delays = _delays(LOW_BITS)
    ends = (delays << np.uint32(LOG_BITS)) + logs.astype(np.uint32)
    four = np.array([advance(np.uint64(r), 4) for r in range(16)], np.uint64)
    four = np.concatenate([powers[four[:, 0]], four[:, 1]])
    eight = np.array([advance(np.uint64(r), 8) for r in range(256)], np.uint64)
    eight = powers[eight[:, 0]] + (eight[:, 1] << np.uint64(32))
    return Lookup(
        steps=_steps(STEP_BITS),
        ends=ends.astype(np.uint16),
        delays=delays.astype(np.uint16),
        powers=powers,
        four=four,
        eight=eight,
    )


@lru_cache
def groups(bits: int) -> Groups:
    """Return the residue classes modulo 2^bits, for bits <= 24. Building them takes about a second and 39 MB."""
    tables = table_cache.load_or_compute("collatz", f"groups-{bits}", lambda: _padded_groups(bits))
    return Groups(packed=tables["packed"][:-PADDING], first=tables["first"])


def _padded_groups(bits: int) -> table_cache.Tables:
    packed, first = _groups(bits, lookup().steps)
    return {"packed": _pad(packed), "first": first}


def _pad(packed: np.ndarray) -> np.ndarray:
    return np.concatenate([packed, np.zeros(PADDING, np.uint64)])


@lru_cache(maxsize=4)
def groups_from(bits: int, least: int) -> Groups:
    """Return the residue classes modulo 2^bits with at least `least` odd steps among their first `bits` steps."""
    every = groups(bits)
    enough = (every.packed & np.uint64(2**D_SHIFT - 1)) >= np.uint64(least)
    return Groups(packed=_pad(every.packed[enough])[:-PADDING], first=every.first[enough])
