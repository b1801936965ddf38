"""Sieve that selects the numbers that verification must check (candidates), with the values after their first 24 steps.

The sieve depends only on n, as README.md defines, and must never change, because checksums of old jobs depend on it. n
= 2^32 h + 2^24 s + r is a candidate if r is among `residues`, bit s of the residue's mask is set, and n mod 81 is live.
Its 24th shortcut step is 3^c (2^8 h + s) + d.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from jobs.kinds import table_cache

#: Bits of a cell and of a block: a block of 2^BLOCK_BITS numbers consists of CELLS cells of 2^RESIDUE_BITS numbers.
RESIDUE_BITS, BLOCK_BITS = 24, 32
CELLS = 2 ** (BLOCK_BITS - RESIDUE_BITS)
#: Bit positions of c and of r mod 81 in a packed residue; the lowest bits are d.
C_SHIFT, RHO_SHIFT = 39, 44
#: Modulus by which the sieve excludes numbers that a smaller number leads to.
THREES = 81

_ONE, _THREE, _FIVE = np.uint64(1), np.uint64(3), np.uint64(5)
_BYTE, _EIGHT = np.uint64(255), np.uint64(8)
_LOW = np.uint64(2**16 - 1)
_HASH, _HASH_SHIFT, _HASH_MASK = np.uint64(0x9E3779B97F4A7C15), np.uint64(44), np.uint64(2**20 - 1)
_STEPS_SHIFT, _STEPS_MASK = np.uint64(32), np.uint64(2**32 - 1)


class Sieve(NamedTuple):
    #: Residues modulo 2^24 that the sieve does not exclude, in ascending order.
    residues: Any
    #: Table of d + (c << 39) + (r mod 81 << 44) for each residue that the sieve does not exclude.
    packed: Any
    #: Four words per residue: bit s is set if the sieve does not exclude r + 2^24 s modulo 2^32.
    masks: Any
    #: Four words per row (h 2^32 mod 81) + (r mod 81): bit s is set if the sieve does not exclude n mod 81.
    threes: Any
    #: Powers 3^0 .. 3^40.
    powers: Any


def live_mod_81(n: int) -> bool:
    """Return True if no smaller m leads to n as (3m+1)/2, (9m+5)/8 or (81m+73)/64."""
    return n % 3 != 2 and n % 9 != 4 and n % 81 != 10


@njit(nogil=True, cache=True)
def _step(c: np.uint64, x: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Perform one shortcut step on x, and increase c if x is odd."""
    if x & _ONE:
        return c + _ONE, (_THREE * x + _ONE) >> _ONE
    return c, x >> _ONE


@njit(nogil=True, cache=True)
def _steps(bits: int) -> np.ndarray:
    """Return a table of d + (c << 32) for each residue modulo 2^bits after `bits` steps."""
    table = np.empty(1 << bits, np.uint64)
    for r in range(1 << bits):
        c, x = np.uint64(0), np.uint64(r)
        for _ in range(bits):
            c, x = _step(c, x)
        table[r] = x | c << _STEPS_SHIFT
    return table


@njit(nogil=True, cache=True)
def not_falling(bits: int, powers: np.ndarray) -> np.ndarray:
    """Return rows (r, c, d) of the residues that do not fall to r or below within `bits` steps.

    A residue falls after j steps if 3^c < 2^j and the value is at most r.
    """
    rows, count = np.zeros((1, 3), np.uint64), 1
    for j in range(bits):
        wider, kept = np.empty((2 * count, 3), np.uint64), 0
        for i in range(count):
            for bit in range(2):
                r = rows[i, 0] + (np.uint64(bit) << np.uint64(j))
                c, x = _step(rows[i, 1], rows[i, 2] + np.uint64(bit) * powers[rows[i, 1]])
                wider[kept, 0], wider[kept, 1], wider[kept, 2] = r, c, x
                kept += not (powers[c] < _ONE << np.uint64(j + 1) and x <= r)
        rows, count = wider[:kept], kept
    return rows


@njit(nogil=True, cache=True)
def _slot(key: np.uint64) -> np.uint64:
    return (key * _HASH) >> _HASH_SHIFT


@njit(nogil=True, cache=True)
def _first_of_class(rows: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return for each row whether no smaller residue modulo 2^24 reaches the same value with as many odd steps."""
    slots = np.full(1 << 20, -1, np.int32)
    first = np.ones(len(rows), np.bool_)
    for i in range(len(rows)):
        slot = _slot(rows[i, 2] << _FIVE | rows[i, 1])
        while slots[slot] >= 0:
            slot = (slot + _ONE) & _HASH_MASK
        slots[slot] = i
    sixteen, eight, least = _steps(np.int64(16)), _steps(np.int64(8)), rows[:, 1].min()
    for r in range(1 << 24):
        entry = sixteen[r & 0xFFFF]
        c = entry >> _STEPS_SHIFT
        x = (entry & _STEPS_MASK) + np.uint64(r >> 16) * powers[c]
        entry = eight[x & _BYTE]
        if c + (entry >> _STEPS_SHIFT) < least:
            continue
        x = (x >> _EIGHT) * powers[entry >> _STEPS_SHIFT] + (entry & _STEPS_MASK)
        c += entry >> _STEPS_SHIFT
        slot = _slot(x << _FIVE | c)
        while slots[slot] >= 0:
            i = slots[slot]
            if rows[i, 1] == c and rows[i, 2] == x and rows[i, 0] > np.uint64(r):
                first[i] = False
            slot = (slot + _ONE) & _HASH_MASK
    return first


@njit(nogil=True, cache=True)
def _still_up(powers: np.ndarray) -> np.ndarray:
    """Return a table [c, lowest byte of the 24th value] that is True if 3^c stays above 2^j for j = 25..32."""
    up = np.ones((25, 256), np.bool_)
    for start in range(25):
        for low in range(256):
            c, x = np.uint64(start), np.uint64(low)
            for j in range(25, 33):
                c, x = _step(c, x)
                up[start, low] &= powers[c] > _ONE << np.uint64(j)
    return up


@njit(nogil=True, cache=True)
def _masks(rows: np.ndarray, powers: np.ndarray) -> np.ndarray:
    up, masks = _still_up(powers), np.zeros((len(rows), 4), np.uint64)
    for i in range(len(rows)):
        x, power, row = rows[i, 2], powers[rows[i, 1]], up[rows[i, 1]]
        for word in range(4):
            bits = np.uint64(0)
            for s in range(64):
                bits |= np.uint64(row[x & _BYTE]) << np.uint64(s)
                x += power
            masks[i, word] = bits
    return masks


def _threes() -> np.ndarray:
    rows = [
        sum(live_mod_81(row + (s << RESIDUE_BITS)) << s for s in range(CELLS)).to_bytes(CELLS // 8, "little")
        for row in range(2 * THREES)
    ]
    return np.frombuffer(b"".join(rows), np.uint64).reshape(-1, 4).copy()


@lru_cache
def sieve() -> Sieve:
    """Return the sieve. Building it takes about half a second and 11 MB."""
    return Sieve(**table_cache.load_or_compute("collatz", "sieve", lambda: _sieve()._asdict()))


def _sieve() -> Sieve:
    powers = np.array([3**c for c in range(41)], np.uint64)
    rows = not_falling(RESIDUE_BITS, powers)
    rows = rows[np.argsort(rows[:, 0])]
    rows = rows[_first_of_class(rows, powers)]
    r, c, d = rows.T
    packed = d | c << np.uint64(C_SHIFT) | (r % np.uint64(THREES)) << np.uint64(RHO_SHIFT)
    return Sieve(
        residues=r.astype(np.uint32), packed=packed, masks=_masks(rows, powers), threes=_threes(), powers=powers
    )
