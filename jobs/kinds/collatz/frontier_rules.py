"""Rules by which mode `frontier` drops numbers, in plain Python. frontier.md proves them.

A class consists of the numbers b + 2^k a. The first k shortcut steps of all its numbers have the same parities, c of
them odd, and lead to x + 3^c a. The class is dropped if these values are below their starts, or if smaller numbers lead
to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

#: Options of functions that only compiled code calls. They need no wrappers, which take long to compile.
INNER = {"nogil": True, "cache": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
#: Numbers below 2^BASE_BITS are verified one by one, because the rules hold for larger numbers only.
BASE_BITS = 14
#: Bounds of N. The rules hold up to MOST_BITS.
LEAST_BITS, MOST_BITS = 20, 88
#: Maximum N of a search on GPUs.
MOST_GPU_BITS = 82
#: Maximum number of odd steps up to which classes are followed in two words: 3^MOST_ODD < 2^126.
MOST_ODD = 79
#: Number of highest bits of n that a leaf leaves open: a leaf contains 64 numbers.
LEAF_BITS = 6
#: Number of steps after the depth of a leaf that the tables decide.
WINDOW = 22
#: Number of steps of a pass of a survivor. It is compared with its floor after each pass.
PASS_STEPS = 18
#: Number of highest bits of n, below bit N, that a floor keeps; more if floors would clear more than LIMB bits.
LEAD_BITS = 30
#: Number of bits of the low word of a survivor in a pool.
LIMB = 52
#: A value's predecessors are known up to JOINS odd steps, from the value modulo 3^JOINS.
JOINS = 7
#: The start n itself is tested modulo 3^START_JOINS.
START_JOINS = 4
#: Unit of logarithms to base 2, and log2(3) in this unit, rounded.
ONE = 2**20
LOG3 = 1_661_954
#: Limit below which a logarithm counts as negative: logarithms of the fractions in use are 0 or at least 0.0134 away.
NEGATIVE = -7000
#: Maximum number of doublings before each odd step backward.
DOUBLINGS = 5


class Node(NamedTuple):
    """Class of the numbers b + 2^k a, whose first k steps contain c odd ones and lead to x + 3^c a."""

    b: int
    k: int
    c: int
    x: int


@cache
def join(known: int, residue: int) -> int:
    """Return the logarithm of the least factor by which a predecessor differs from a value, at most 0.

    The value modulo 3^known is `residue`. Each way back has at most `known` odd steps.
    """
    least, value = 0, residue
    for doublings in range(DOUBLINGS + 1) if known and residue % 3 else ():
        if value % 3 == 2:
            before = (2 * value - 1) // 3 % 3 ** (known - 1)
            least = min(least, (doublings + 1) * ONE - LOG3 + join(known - 1, before))
        value *= 2
    return least


def drops(c: int, k: int, known: int, value: int) -> bool:
    """Return True if k steps with c odd ones lead to a value that a number below the start reaches.

    The value is known modulo 3^known.
    """
    known = min(known, JOINS)
    return c * LOG3 - k * ONE + join(known, value % 3**known) < NEGATIVE


def children(node: Node) -> Iterator[Node]:
    """Yield the two classes of a node with one more bit, without those that are dropped."""
    for bit in range(2):
        x = node.x + bit * 3**node.c
        c, x = node.c + x % 2, (3 * x + 1) // 2 if x % 2 else x // 2
        if not drops(c, node.k + 1, c, x):
            yield Node(node.b + (bit << node.k), node.k + 1, c, x)


def nodes(depth: int) -> list[Node]:
    """Return all nodes at a depth that are not dropped, ordered by their bits from the lowest to the highest."""
    level = [Node(0, 0, 0, 0)]
    for _ in range(depth):
        level = [child for node in level for child in children(node)]
    return level


def survives(n: int, bits: int) -> bool:
    """Return True if no rule drops n in a search of all numbers below 2^bits."""
    if join(START_JOINS, n % 3**START_JOINS) < NEGATIVE:
        return False
    leaf = bits - LEAF_BITS
    x, c, at_leaf = n, 0, 0
    for k in range(1, leaf + WINDOW + 1):
        c, x = c + x % 2, (3 * x + 1) // 2 if x % 2 else x // 2
        if drops(c, k, c - at_leaf, x):
            return False
        if k == leaf:
            at_leaf = c
    return True


def floor_shift(bits: int) -> int:
    """Return how many low bits of a number its floor clears."""
    return min(max(0, bits - LEAD_BITS), LIMB)


def step(x: int) -> int:
    return (3 * x + 1) // 2 if x % 2 else x // 2


def follow(n: int, bits: int) -> tuple[int, int, int]:
    """Return how many passes lead from the leaf of n below the floor, the last value, and the OR of the values."""
    shift, x, passes, every = floor_shift(bits), n, 0, 0
    floor = n >> shift << shift or 1 << (n.bit_length() - 1)
    for _ in range(bits - LEAF_BITS):
        x = step(x)
    while x >= floor:
        passes += 1
        for _ in range(PASS_STEPS):
            x = step(x)
        every |= x
    return passes, x, every
