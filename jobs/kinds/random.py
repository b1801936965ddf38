"""SplitMix64: random words that depend on a key and a number alone, so every cut of the work draws the same ones.

This is the truth; `random_cpu.py` is its compiled twin and `random.cuh` its twin on a GPU.
"""

from __future__ import annotations

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST_FACTOR = 0xBF58476D1CE4E5B9
SECOND_FACTOR = 0x94D049BB133111EB


def mix(word: int) -> int:
    """SplitMix64's finaliser, a bijection of 64-bit words."""
    word = (word ^ word >> 30) * FIRST_FACTOR & MASK
    word = (word ^ word >> 27) * SECOND_FACTOR & MASK
    return word ^ word >> 31


def offset(number: int) -> int:
    """Return the 64-bit word that is added to a key before mixing, to draw its `number`-th word."""
    return GOLDEN * (number + 1) & MASK


def sub(key: int, number: int) -> int:
    """Return the `number`-th word below a key, from 0; it is a key itself. SplitMix64 seeded with s gives sub(s, 0),
    sub(s, 1) and so on.
    """
    return mix(key + offset(number) & MASK)
