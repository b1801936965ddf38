"""P2: numbers/s of full Collatz statistics on one thread, over a plain loop in C."""

from __future__ import annotations

from functools import partial

from benchmarks.collatz.lanes import c_rate, lease, rate, two_lanes
from benchmarks.measure import Row, in_turns

POINTS = {"1e9": 10**9, "1e12": 10**12, "1e15": 10**15}
ROUNDS = 5
LOOP_COUNT = 5_000_000


def run() -> list[Row]:
    rows = []
    for point, start in POINTS.items():
        aligned = start >> 22 << 22
        count = lease("statistics", aligned, 2**22)
        ours, peer = in_turns(
            partial(rate, "statistics", aligned, count),
            partial(c_rate, "statistics", aligned, LOOP_COUNT),
            ROUNDS,
            f"P2@{point}",
        )
        row = Row(id=f"P2@{point}", ours=ours, peer=peer, unit="numbers/s", peer_name="C -O3, ctz")
        rows.append(row)
    aligned = 10**12 >> 22 << 22
    return [*rows, two_lanes("P2", "statistics", aligned, lease("statistics", aligned, 2**22), ROUNDS)]
