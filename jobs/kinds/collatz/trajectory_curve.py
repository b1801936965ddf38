"""Computes binary logarithms with integers, so that plots are the same on every machine."""

from __future__ import annotations

#: Logarithms are integers in units of 2^-FRACTION_BITS.
FRACTION_BITS = 16
_WORD = 64


def leading(value: int) -> int:
    """Return the exponent and the leading 64 bits of a value >= 1 as one integer, which sorts like the value."""
    exponent = value.bit_length() - 1
    excess = exponent - (_WORD - 1)
    return exponent << _WORD | (value >> excess if excess > 0 else value << -excess)


def log2(lead: int) -> int:
    """Return log2 of a value encoded by `leading`, rounded down, in units of 2^-16."""
    logarithm, mantissa = lead >> _WORD, lead & 2**_WORD - 1
    # The mantissa is in [1, 2) in units of 2^-63. Each squaring reveals one more bit of its logarithm.
    for _ in range(FRACTION_BITS):
        mantissa = mantissa * mantissa >> (_WORD - 1)
        bit = mantissa >> _WORD
        mantissa >>= bit
        logarithm = 2 * logarithm + bit
    return logarithm
