"""Logarithms as integers, so that a curve is the same on every machine."""

from __future__ import annotations

#: A logarithm is counted in units of 2^-FRACTION_BITS.
FRACTION_BITS = 16
_WORD = 64


def leading(value: int) -> int:
    """Exponent and leading 64 bits as one integer that orders as the value does, up to those bits; value >= 1."""
    exponent = value.bit_length() - 1
    excess = exponent - (_WORD - 1)
    return exponent << _WORD | (value >> excess if excess > 0 else value << -excess)


def log2(lead: int) -> int:
    """log2, rounded down, in units of 2^-16, of a value given by `leading`."""
    logarithm, mantissa = lead >> _WORD, lead & 2**_WORD - 1
    # the mantissa lies in [1, 2) in units of 2^-63; each squaring reveals one more bit of its logarithm
    for _ in range(FRACTION_BITS):
        mantissa = mantissa * mantissa >> (_WORD - 1)
        bit = mantissa >> _WORD
        mantissa >>= bit
        logarithm = 2 * logarithm + bit
    return logarithm
