"""Divides mode `frontier` into units. A unit is a class of numbers with the same lowest bits.

The nodes at the depth `root` of the tree of classes are numbered in a fixed permutation, so that progress is even
although their work differs. Each node contains 2^more units. The next `more` bits of a number, the lowest bit first,
are the bits of the unit's number within its node, the highest bit first. So consecutive units are subtrees.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jobs.models import Partial, Spec
from threads_protocol.numbers import exact

#: Maximum depth of the numbered nodes, and minimum number of bits that a unit leaves open.
ROOT, OPEN_BITS = 22, 26
#: Maximum number of bits of a unit's number within its node, so that numbers of units stay below 2^53.
MOST_MORE = 37
#: Number of nodes at each depth that the rules do not drop.
NODES = dict(enumerate((46, 81, 147, 249, 453, 838, 1433, 2640, 4881, 9018, 16965, 30200, 56161), start=10))
#: Number of blocks of a certificate.
BLOCKS = 4096
#: The permutation maps unit u to the node (u * MULTIPLIER) modulo the number of nodes.
MULTIPLIER = 1_000_003


class Division(NamedTuple):
    """Division of all numbers below 2^bits into units."""

    bits: int
    root: int
    more: int
    units: int

    def block(self, unit: int) -> int:
        """Return the block of a unit."""
        return unit * BLOCKS // self.units

    def block_range(self, block: int) -> tuple[int, int]:
        """Return the first unit of a block, and the first unit of the next block."""
        return -(-block * self.units // BLOCKS), -(-(block + 1) * self.units // BLOCKS)

    def node(self, unit: int) -> int:
        """Return the index of the node to which a unit belongs."""
        return (unit >> self.more) * MULTIPLIER % NODES[self.root]


def division(bits: int) -> Division:
    root = min(ROOT, bits - 10)
    more = min(max(0, bits - OPEN_BITS - root), MOST_MORE)
    return Division(bits, root, more, NODES[root] << more)


def merge(left: Partial, right: Partial) -> Partial:
    """Merge two partial results without changing the arguments. The checksums of blocks add up modulo 2^64."""
    blocks = {row[0]: row for row in left["blocks"]}
    for block, *sums in right["blocks"]:
        before = blocks.get(block, [block, 0, 0, 0])[1:]
        survivors, passes, checksum = (one + other for one, other in zip(before, sums, strict=True))
        blocks[block] = [block, survivors, passes, checksum % 2**64]
    return {
        "units": left["units"] + right["units"],
        "blocks": [blocks[block] for block in sorted(blocks)],
        "largest_bits": max(left["largest_bits"], right["largest_bits"]),
    }


def result(spec: Spec, partial: Partial) -> dict[str, Any]:
    """Return the result that users read; README.md describes its fields."""
    bits, blocks = spec["bits"], partial["blocks"]
    verified = partial["units"] == division(bits).units
    statement = f"Every number from 1 to 2^{bits} - 1 reaches 1."
    return {
        "bits": bits,
        "verified": verified,
        "statement": statement if verified else "Verification is not finished.",
        "survivors": exact(sum(row[1] for row in blocks)),
        "block_steps": exact(sum(row[2] for row in blocks)),
        "checksum": str(sum(row[3] for row in blocks) % 2**64),
        "largest_bits": partial["largest_bits"],
        "certificate": [
            [block, exact(count), exact(passes), str(checksum)] for block, count, passes, checksum in blocks
        ],
    }
