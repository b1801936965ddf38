"""Mode `frontier` on a GPU. Each launch searches many units; frontier.md explains and proves the search."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from jobs.kinds import gpu
from jobs.kinds.collatz import frontier, frontier_plan
from jobs.kinds.collatz import frontier_rules as rules
from jobs.kinds.collatz.frontier_plan import MULTIPLIER, Division, division
from jobs.kinds.collatz.frontier_pools import PASSES
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

#: Indexes of the words of a launch's sums: the next part to search, the number of failures, a bitwise OR of all values
#: in six limbs, and a row for each block of the certificate: survivors, passes, checksum.
NEXT, FAILED, BITS, ROWS = 0, 1, 2, 8
#: Number of threads per block of a launch, and number of blocks per multiprocessor.
THREADS, BLOCKS_A_PROCESSOR = 128, 6
#: Number of levels of the tree that one lookup decides.
LEVELS = 8
#: Maximum N for which values are stored in 96 bits; larger values are rare.
NARROW_BITS = 70
#: Number of units of the first launch, and maximum number of units of a launch.
FIRST_UNITS, MOST_UNITS = 2**8, 2**26

_MODULUS, _STARTS = 3**rules.JOINS, 3**rules.START_JOINS
_POWERS = rules.MOST_GPU_BITS - rules.LEAF_BITS + 1
SOURCE = gpu.Source(
    Path(__file__).with_name("frontier_gpu.cu"),
    (
        ("MODULUS", _MODULUS),
        ("WORD_MODULUS", 2**64 % _MODULUS),
        ("LOG3", rules.LOG3),
        ("ONE", rules.ONE),
        ("NEGATIVE", rules.NEGATIVE),
        ("STARTS", _STARTS),
        ("WORD_STARTS", 2**64 % _STARTS),
        ("WINDOW_BITS", rules.WINDOW),
        ("WINDOW_WORDS", 2**rules.WINDOW // 64 + 1),
        ("MULTIPLIER", MULTIPLIER),
        ("HALF_STEPS", rules.PASS_STEPS // 2),
        ("NEXT", NEXT),
        ("FAILED", FAILED),
        ("BITS", BITS),
        ("ROWS", ROWS),
        ("THREADS", THREADS),
        ("BLOCKS_A_PROCESSOR", BLOCKS_A_PROCESSOR),
        ("POWERS", _POWERS),
        ("COPIES", 4),
        ("PASSES_A_ROUND", 3),
    ),
)


class Levels(NamedTuple):
    """How the levels between a unit and its leaves are divided."""

    #: Levels from a unit down to its parts.
    part: int
    #: Levels that the first table and the second table decide.
    upper: int
    lower: int


class Tables(NamedTuple):
    """Tables of a search in GPU memory, in the order of the kernel's parameters."""

    root_values: gpu.Array
    root_bits: gpu.Array
    power_low: gpu.Array
    power_high: gpu.Array
    windows: gpu.Array
    starts: gpu.Array
    inverses: gpu.Array
    joins: gpu.Array
    upper_slack: gpu.Array
    lower_slack: gpu.Array


def divide(cut: Division) -> Levels:
    open_levels = cut.bits - rules.LEAF_BITS - cut.root - cut.more
    lower = min(LEVELS, open_levels)
    upper = min(LEVELS, open_levels - lower)
    return Levels(open_levels - lower - upper, upper, lower)


def slack(levels: int, joins: np.ndarray) -> np.ndarray:
    """Return the least height that the next `levels` steps add to a node, by its residues modulo 3^JOINS and 2^levels.

    The rules drop one of the next nodes if the sum of the node's height and this number is below NEGATIVE.
    """
    half = np.arange(_MODULUS)
    half = (half + half % 2 * _MODULUS) // 2
    least = np.full((_MODULUS, 2**levels), 2**30, np.int32)
    for residue in range(2**levels):
        x, height, rest = residue, 0, np.arange(_MODULUS)
        for _ in range(levels):
            rest = half[(3 * rest + 1) % _MODULUS if x % 2 else rest]
            height += x % 2 * rules.LOG3 - rules.ONE
            x = (3 * x + 1) // 2 if x % 2 else x // 2
            least[:, residue] = np.minimum(least[:, residue], height + joins[rest])
    return least


@lru_cache(maxsize=2)
def tables_on(device: Any, bits: int, root: int, levels: Levels) -> Tables:
    host, roots = frontier.tables(bits), frontier.root_nodes(root)

    def powers(words: np.ndarray) -> np.ndarray:
        return np.concatenate([words, np.zeros(_POWERS - len(words), words.dtype)])

    arrays = (
        np.array([node.x for node in roots], np.uint64),
        np.array([node.b | node.c << 32 for node in roots], np.uint64),
        powers(host.power_low),
        powers(host.power_high),
        host.windows.ravel(),
        host.starts,
        powers(host.inverses.astype(np.uint32)),
        host.joins.astype(np.int32),
        slack(levels.upper, host.joins).ravel(),
        slack(levels.lower, host.joins).ravel(),
    )
    return Tables(*map(device.put, arrays))


@lru_cache
def batch(bits: int) -> gpu.Batch:
    """Return the number of units per launch, which all lanes share."""
    return gpu.Batch(first=FIRST_UNITS, most=MOST_UNITS)


def search_units(cut: Division, lo: int, hi: int) -> Partial:
    """Search units lo..hi-1 with one launch."""
    device, levels = gpu.current_device(), divide(cut)
    blocks = [block for block in range(cut.block(lo), cut.block(hi - 1) + 1) if has_units(cut, block)]
    ends = device.put(np.array([cut.block_range(block)[1] for block in blocks], np.uint64))
    sums = device.zeros(ROWS + 3 * len(blocks), np.uint64)
    gpu.kernels(SOURCE)(
        "frontier_narrow" if cut.bits <= NARROW_BITS else "frontier_wide",
        BLOCKS_A_PROCESSOR * device.processors,
        THREADS,
        lo,
        cut.node(lo),
        levels.part,
        (hi - lo) << levels.part,
        frontier_plan.NODES[cut.root],
        cut.root,
        cut.more,
        levels.upper,
        levels.lower,
        rules.floor_shift(cut.bits),
        2 ** (cut.bits - rules.LEAF_BITS - levels.lower) % _STARTS,
        PASSES,
        *tables_on(device, cut.bits, cut.root, levels),
        ends,
        sums,
    )
    words = device.get(sums).tolist()
    if words[FAILED]:
        raise ArithmeticError("a number exceeds 192 bits or does not fall below its start")
    largest = sum(word << 32 * limb for limb, word in enumerate(words[BITS:ROWS]))
    return {
        "units": hi - lo,
        "blocks": [[block, *words[at : at + 3]] for block, at in zip(blocks, range(ROWS, len(words), 3), strict=True)],
        "largest_bits": largest.bit_length(),
    }


def has_units(cut: Division, block: int) -> bool:
    low, high = cut.block_range(block)
    return low < high


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Verify units lo..hi-1 and return (upto, partial result of units lo..upto-1).

    Stops between two launches if `tick` returns False.
    """
    cut, at, ticked = division(int(spec["bits"])), lo, monotonic()
    partial: Partial = {}
    if lo == 0:
        frontier.check_base()

    def launch(units: int) -> int:
        nonlocal partial
        found = search_units(cut, at, at + units)
        partial = frontier_plan.merge(partial, found) if partial else found
        return units

    while at < hi:
        at += batch(cut.bits).take(min(hi - at, spec.get("batch_size") or hi), launch)
        if monotonic() - ticked >= frontier.TICK_SECONDS and at < hi:
            ticked = monotonic()
            if not tick(at):
                break
    return at, partial


def warm() -> None:
    """Compile the kernels and copy tables to the GPU."""
    search_units(division(rules.LEAST_BITS), 0, 1)
