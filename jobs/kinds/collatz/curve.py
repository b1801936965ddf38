"""Logarithms as integers, so that a curve is the same on every machine."""

from __future__ import annotations

#: A logarithm is counted in units of 2^-FRACTION_BITS.
FRACTION_BITS = 16
_WORD = 64


def log2(value: int) -> int:
    """log2(value) in units of 2^-16 from the leading 64 bits, rounded down; value >= 1."""
    exponent = value.bit_length() - 1
    # the mantissa in [1, 2), in units of 2^-63; each squaring reveals one more bit of the logarithm
    mantissa = value << (_WORD - 1 - exponent) if exponent < _WORD else value >> (exponent - _WORD + 1)
    logarithm = exponent
    for _ in range(FRACTION_BITS):
        mantissa = mantissa * mantissa >> (_WORD - 1)
        bit = mantissa >> _WORD
        mantissa >>= bit
        logarithm = 2 * logarithm + bit
    return logarithm
