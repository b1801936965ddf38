"""Tables of the block step: for n = 2^k h + r, k shortcut steps lead to 3^c h + d with c and d functions of r alone.

Built by numba at first use and kept in the module's memory, those that take long on the disk too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from jobs.kinds import kept_tables

#: Steps taken by one lookup.
STEP_BITS = 16
#: A walk by lookups ends below 2^LOW_BITS, with the delay from a table. Must not be under STEP_BITS: a block step
#: must never run through 1, and from 2^16 on none does.
LOW_BITS = 17
#: Greatest peak of all numbers below 2^LOW_BITS, that of 113383.
LOW_PEAK = 2_482_111_348
#: An end is the delay plus the logarithm to base 3, in units of 2^-LOG_BITS, rounded down: 16 bits, and so a table of
#: 256 KB, half as much as delays and logarithms side by side.
LOG_BITS = 7
#: Entries after the classes: vectors read beyond the end.
PADDING = 8
#: Where d and the weight lie in a packed class, c being in the lowest bits; and where c lies in a packed step.
D_SHIFT, WEIGHT_SHIFT, C_SHIFT = 5, 44, 26

_ONE, _THREE = np.uint64(1), np.uint64(3)


class Lookup(NamedTuple):
    """Tables of a walk by lookups."""

    #: d + (c << 26) of each residue modulo 2^16 after 16 shortcut steps.
    steps: Any
    #: Delay + logarithm of each number below 2^17, and the delay alone; those of 0 mean nothing.
    ends: Any
    delays: Any
    #: 3^0 .. 3^31.
    powers: Any
    #: 3^c of the residues modulo 16 after four shortcut steps, then d of each.
    four: Any
    #: 3^c + (d << 32) of each residue modulo 2^8 after eight.
    eight: Any


class Groups(NamedTuple):
    """The residues modulo 2^bits that share (c, d), one entry a class, ordered by their least residue."""

    #: c + (d << 5) + (number of residues << 44).
    packed: Any
    #: The least residue.
    first: Any


@njit(nogil=True, cache=True)
def advance(r: np.uint64, steps: int) -> tuple[np.uint64, np.uint64]:
    """(c, d): odd steps among `steps` shortcut steps from r, and the value after them, running through 1 if need be."""
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
    """table[n] = delay of n, for 1 <= n < 2^bits."""
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
    """Classes in order of their least residue, found with a hash table of open addressing."""
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
    """`advance`, its first 16 steps by one lookup."""
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
    """Classes modulo 2^bits; bits <= 24, for which it takes about a second, once, and 39 MB."""
    tables = kept_tables.kept("collatz", f"groups-{bits}", lambda: _padded_groups(bits))
    return Groups(packed=tables["packed"][:-PADDING], first=tables["first"])


def _padded_groups(bits: int) -> kept_tables.Tables:
    packed, first = _groups(bits, lookup().steps)
    return {"packed": _padded(packed), "first": first}


def _padded(packed: np.ndarray) -> np.ndarray:
    return np.concatenate([packed, np.zeros(PADDING, np.uint64)])


@lru_cache(maxsize=4)
def groups_from(bits: int, least: int) -> Groups:
    """The classes with at least `least` odd steps among their first `bits`."""
    every = groups(bits)
    enough = (every.packed & np.uint64(2**D_SHIFT - 1)) >= np.uint64(least)
    return Groups(packed=_padded(every.packed[enough])[:-PADDING], first=every.first[enough])
