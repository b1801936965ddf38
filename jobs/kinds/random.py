"""SplitMix64 random numbers. A number depends only on a key and an index, not on how work is divided.

This module is the reference; `random_cpu.py` and `random.cuh` implement the same functions for CPUs and GPUs.
"""

from __future__ import annotations

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST_FACTOR = 0xBF58476D1CE4E5B9
SECOND_FACTOR = 0x94D049BB133111EB


def mix(word: int) -> int:
    """Apply the SplitMix64 finalizer, a bijection on 64-bit words."""
    word = (word ^ word >> 30) * FIRST_FACTOR & MASK
    word = (word ^ word >> 27) * SECOND_FACTOR & MASK
    return word ^ word >> 31


def offset(number: int) -> int:
    """Return the 64-bit word that is added to a key to draw the key's random number with index `number`."""
    return GOLDEN * (number + 1) & MASK


def sub(key: int, number: int) -> int:
    """Return the random 64-bit number of a key with index `number`. The random number can itself be used as a key.

    SplitMix64 seeded with s returns sub(s, 0), sub(s, 1) and so on.
    """
    return mix(key + offset(number) & MASK)
