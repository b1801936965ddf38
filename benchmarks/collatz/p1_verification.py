"""P1: numbers/s of Collatz verification on one thread, over Barina's worker or a plain loop in C.

BARINA_WORKER may name the `worker` program built from github.com/xbarin02/collatz (src/worker), with the map of its
sieve beside it. It runs tasks of 2^33 numbers; its own user time counts.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks.collatz.lanes import c_rate, lease, rate, two_lanes
from benchmarks.measure import Row, in_turns

POINTS = {"2^40": 2**40, "2^66": 2**66}
ROUNDS = 5
TASK_BITS, LOOP_COUNT = 33, 2**26


def _barina(program: Path, start: int) -> float:
    command = [str(program), "-t", str(TASK_BITS), str(start >> TASK_BITS)]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=True)
    words = next(line.split() for line in done.stdout.splitlines() if line.startswith("TIME"))
    return float(2**TASK_BITS / (int(words[2]) / 1e6))


def _peer(start: int) -> float:
    named = os.environ.get("BARINA_WORKER")
    return _barina(Path(named).resolve(), start) if named else c_rate("convergence", start >> 32, LOOP_COUNT)


def run() -> list[Row]:
    name = "Barina's worker" if os.environ.get("BARINA_WORKER") else "C -O3, ctz, n = 3 mod 4, until below n"
    rows = []
    for point, start in POINTS.items():
        count = lease("verify", start, 2**32)
        turns = (lambda at=start, many=count: rate("verify", at, many)), (lambda at=start: _peer(at))
        ours, peer = in_turns(*turns, ROUNDS, f"P1@{point}")
        rows.append(Row(id=f"P1@{point}", ours=ours, peer=peer, unit="numbers/s", peer_name=name))
    return [*rows, two_lanes("P1", "verify", 2**40, lease("verify", 2**40, 2**32), ROUNDS)]
