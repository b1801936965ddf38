"""Kill workers during a search of the Collatz frontier, and compare its result with two undisturbed ones.

`python -m tests.chaos.frontier --bits 44` verifies all numbers below 2^44 three times: on a cluster with two lanes, on
the same cluster while it sends SIGKILL to the worker and to its lanes, and without a cluster in one thread. All sums
and all blocks of the certificate must be equal.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from jobs.worker import certificates
from tests.integration.live import Live

#: Seconds within which a search must finish.
PATIENCE_SECONDS = 3600.0


def search(live: Live, bits: int) -> tuple[Any, float]:
    """Return the result of a search on the cluster, and its duration in seconds."""
    began = time.monotonic()
    result = live.result(live.submit("collatz", {"mode": "frontier", "bits": bits}), PATIENCE_SECONDS)
    return result, time.monotonic() - began


def kill_processes(live: Live, dice: random.Random, pause_seconds: float, over: threading.Event) -> Counter[str]:
    """Kill the worker or one of its processes every few seconds until `over` is set. Return the number of each."""
    kills = Counter[str]()
    while not over.wait(dice.uniform(0.5, 1.5) * pause_seconds):
        children = []
        with suppress(psutil.Error):
            children = psutil.Process(live.processes["worker-0"].pid).children(recursive=True)
        if not children or dice.random() < 0.5:
            live.kill("worker-0")
            live.start_worker(0)
            kills["worker"] += 1
            continue
        with suppress(psutil.Error):
            dice.choice(children).kill()
            kills["process of the worker"] += 1
    return kills


def search_under_kills(live: Live, bits: int, seed: int, pause_seconds: float) -> tuple[Any, float, Counter[str]]:
    over, kills = threading.Event(), Counter[str]()
    killer = threading.Thread(
        target=lambda: kills.update(kill_processes(live, random.Random(seed), pause_seconds, over))
    )
    killer.start()
    try:
        result, seconds = search(live, bits)
    finally:
        over.set()
        killer.join()
    return result, seconds, kills


def run(bits: int, seed: int, pause_seconds: float) -> list[str]:
    """Return the differences between the three searches."""
    with tempfile.TemporaryDirectory() as folder:
        live = Live(Path(folder), workers=1, lanes=2)
        try:
            live.start()
            undisturbed, seconds = search(live, bits)
            print(f"undisturbed: {seconds:.0f} s, checksum {undisturbed['checksum']}", flush=True)
            disturbed, seconds, kills = search_under_kills(live, bits, seed, pause_seconds)
        finally:
            live.stop()
    print(f"with kills: {seconds:.0f} s; killed: {dict(kills)}", flush=True)
    wrong = [f"{name} differs after kills" for name in undisturbed if undisturbed[name] != disturbed.get(name)]
    if not kills:
        wrong.append("nothing was killed; choose a smaller --pause")
    began = time.monotonic()
    try:
        matches = sum("matches" in line for line in certificates.verify({"result": undisturbed}, threads=1))
        print(f"without a cluster, in one thread: {matches} blocks match, {time.monotonic() - began:.0f} s")
    except certificates.Refused as error:
        wrong.append(f"without a cluster: {error}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.frontier", description=__doc__)
    parser.add_argument("--bits", type=int, default=44)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=15.0, help="mean number of seconds between two kills")
    chosen = parser.parse_args()
    wrong = run(chosen.bits, chosen.seed, chosen.pause)
    print(*(wrong or ["all sums and blocks are equal"]), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
