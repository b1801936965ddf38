"""Walks the tree of classes of mode `frontier` down to its leaves, and looks up which numbers of each leaf survive.

A value x < 2^128 consists of the words x_high and x_low.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from jobs.kinds.collatz.frontier_rules import INNER, JOINS, LOG3, MOST_ODD, NEGATIVE, ONE, START_JOINS, WINDOW

#: Indexes of the words of a node on the stack.
B_LOW, B_HIGH, X_LOW, X_HIGH, K, C, REST, WORDS = 0, 1, 2, 3, 4, 5, 6, 7
#: Maximum number of leaves that a walk collects before it pauses.
LEAVES = 1024
#: Maximum number of nodes on the stack: one for each bit, and the nodes at which walks start.
STACK = 160
#: Maximum number of tall nodes that a walk collects before it pauses.
TALL = 64
#: Maximum number of nodes at which one walk starts.
STARTS = 32

_ZERO, _ONE, _SIXTY_THREE, _SIX = np.uint64(0), np.uint64(1), np.uint64(63), np.uint64(6)
_SIXTY_FOUR = np.uint64(64)
_MODULUS, _STARTS = np.uint64(3**JOINS), np.uint64(3**START_JOINS)
_WORD_REST = np.uint64(2**64 % 3**START_JOINS)
_WINDOW_MASK = np.uint64(2**WINDOW - 1)


class Tables(NamedTuple):
    """Tables of a search of all numbers below 2^N."""

    #: Logarithm of the least factor to a predecessor, for each number of known odd steps and each residue.
    joins: Any
    #: Powers of 3 as words: the low words, the high words.
    power_low: Any
    power_high: Any
    #: Inverses of 3^c modulo 2^WINDOW.
    inverses: Any
    #: For each c, a bit for each multiple of 3^c modulo 2^WINDOW: whether a value after N - LEAF_BITS steps survives.
    windows: Any
    #: For each residue modulo 3^START_JOINS of the least number of a leaf, the numbers that survive as starts.
    starts: Any


class Leaves(NamedTuple):
    """Leaves that a walk collects: classes of 64 numbers b + 2^k a."""

    b_low: Any
    b_high: Any
    x_low: Any
    x_high: Any
    c: Any
    #: Position of the least value in its window.
    places: Any
    #: Bit a is set if the number b + 2^k a survives.
    alive: Any
    #: Highest bits of b, which determine the floors.
    lead: Any


@njit(**INNER)
def _half(value: np.uint64) -> np.uint64:
    """Return the residue of half a value, from the residue of the value modulo 3^JOINS."""
    return (value + (_MODULUS if value & _ONE else _ZERO)) >> _ONE


@njit(**INNER)
def walk(
    stack: np.ndarray, size: int, count: int, depth: int, tables: Tables, leaves: Leaves, tall: np.ndarray
) -> tuple[int, int, int]:
    """Walk down from the nodes on the stack until the leaves are full or the stack is empty.

    `count` leaves are there already. Nodes with more than MOST_ODD odd steps are moved to `tall`. Return the size of
    the stack, the number of leaves and the number of tall nodes.
    """
    heads = 0
    joins, power_low, power_high = tables.joins, tables.power_low, tables.power_high
    while size > 0 and count < LEAVES and heads < TALL:
        size -= 1
        node = stack[size]
        b_low, b_high, x_low, x_high = node[B_LOW], node[B_HIGH], node[X_LOW], node[X_HIGH]
        k, c, rest = np.int64(node[K]), np.int64(node[C]), node[REST]
        if c > MOST_ODD:
            tall[heads] = node
            heads += 1
            continue
        if k == depth:
            leaves.b_low[count], leaves.b_high[count] = b_low, b_high
            leaves.x_low[count], leaves.x_high[count], leaves.c[count] = x_low, x_high, c
            count += 1
            continue
        even_height = c * LOG3 - (k + 1) * ONE
        # The class is split by its next bit. One half continues with an even value, and the other with an odd value.
        for bit in range(1, -1, -1):
            y_low, y_high, e_low, e_high = x_low, x_high, b_low, b_high
            if bit:
                y_low += power_low[c]
                y_high += power_high[c] + np.uint64(y_low < x_low)
                if k < 64:
                    e_low |= _ONE << np.uint64(k)
                else:
                    e_high |= _ONE << np.uint64(k - 64)
            odd = y_low & _ONE
            left = rest
            if odd:
                left = np.uint64(3) * rest + _ONE
                left %= _MODULUS
            left = _half(left)
            if even_height + np.int64(odd) * LOG3 + joins[left] < NEGATIVE:
                continue
            z_low, z_high = (y_low >> _ONE) | (y_high << _SIXTY_THREE), y_high >> _ONE
            if odd:
                # (3y + 1) / 2 = y + (y - 1) / 2 + 1
                low = z_low + y_low
                z_high += y_high + np.uint64(low < z_low)
                z_low = low + _ONE
                z_high += np.uint64(z_low == _ZERO)
            child = stack[size]
            child[B_LOW], child[B_HIGH], child[X_LOW], child[X_HIGH] = e_low, e_high, z_low, z_high
            child[K], child[C], child[REST] = k + 1, c + np.int64(odd), left
            size += 1
    return size, count, heads


@njit(**INNER)
def look_up(count: int, tables: Tables, leaves: Leaves) -> None:
    """Look up which numbers of each leaf survive."""
    places, alive = leaves.places, leaves.alive
    for i in range(count):
        places[i] = (leaves.x_low[i] * tables.inverses[leaves.c[i]]) & _WINDOW_MASK
    # Most words are not in a cache, so a loop that does little else keeps many loads in flight.
    for i in range(count):
        window, word, shift = leaves.c[i], np.int64(places[i] >> _SIX), places[i] & _SIXTY_THREE
        alive[i] = (tables.windows[window, word] >> shift) | (
            (tables.windows[window, word + 1] << (_SIXTY_THREE - shift)) << _ONE
        )
    for i in range(count):
        rest = (leaves.b_low[i] % _STARTS + leaves.b_high[i] % _STARTS * _WORD_REST) % _STARTS
        alive[i] &= tables.starts[rest]
