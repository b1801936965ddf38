"""F2: numbers/s of mode `frontier` on one GPU at N = 60, compared with the goal.

All numbers below 2^60 would take hours, so random blocks of the certificate are searched. Blocks need different amounts
of work. A block's share of the work is estimated as its share of the survivors at N = 44, because both searches have
the same blocks of nodes.

Without a GPU, this benchmark returns no rows, and `make gpu-bench` fails.
"""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from benchmarks import gpus
from benchmarks.measure import Row
from jobs.kinds import registry
from jobs.kinds.collatz.frontier_plan import BLOCKS, division
from jobs.models import Device, Partial

BITS, SHARES_BITS = 60, 44
GOAL = 6e13
#: Number of random blocks, and number of leases per block. Two lanes compute leases at once, as in a worker.
SAMPLE, LEASES, LANES = 10, 4, 2


def search(bits: int, lo: int, hi: int) -> Partial:
    return registry.kernel("collatz", Device.GPU).run({"mode": "frontier", "bits": bits}, lo, hi, lambda _: True)[1]


def seconds(blocks: list[int]) -> float:
    """Return how long the GPU takes to search blocks of the search below 2^BITS."""
    cut = division(BITS)
    leases: list[tuple[int, int]] = []
    for low, high in map(cut.block_range, blocks):
        ends = [low + (high - low) * at // LEASES for at in range(LEASES + 1)]
        leases += pairwise(ends)
    began = time.monotonic()
    with ThreadPoolExecutor(LANES) as lanes:
        list(lanes.map(lambda lease: search(BITS, *lease), leases))
    return time.monotonic() - began


def run() -> list[Row]:
    device = gpus.first("F2")
    if device is None:
        return []
    registry.warm("collatz", Device.GPU)
    survivors = [row[1] for row in search(SHARES_BITS, 0, division(SHARES_BITS).units)["blocks"]]
    blocks = random.Random(60).sample(range(BLOCKS), SAMPLE + 1)
    seconds(blocks[:1])  # builds the tables, and adapts the size of launches
    share = sum(survivors[block] for block in blocks[1:]) / sum(survivors)
    rate = share * 2**BITS / seconds(blocks[1:])
    print(f"F2@{BITS}: {rate:.4g} numbers/s on {device.name}", file=sys.stderr)
    return [Row(id=f"F2@{BITS}", ours=rate, peer=GOAL, unit="numbers/s", peer_name=f"the goal; GPU: {device.name}")]
