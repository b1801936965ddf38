"""P4: numbers/s of one GPU, over one core of the same machine; and how busy two lanes keep it.

Without a GPU there are no rows, and `make gpu-bench` fails.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from statistics import mean
from typing import Any

from benchmarks import gpus
from benchmarks.measure import Row
from jobs.kinds import registry
from jobs.models import Device

BLOCK = 2**32
#: Point, mode, start, and numbers for one CPU core.
POINTS = (
    ("verify-64", "verify", 2**40, 4 * BLOCK),
    ("verify-96", "verify", 2**90, 2 * BLOCK),
    ("statistics-1e12", "statistics", 10**12 >> 22 << 22, 2**28),
)
SECONDS, BUSY_SECONDS = 6.0, 60.0


def _spec(mode: str, start: int, count: int) -> dict[str, Any]:
    return {"mode": mode, "start": str(start), "count": count, "batch_size": None}


@dataclass
class Leased:
    """Numbers that lanes have leased and computed; times in seconds of the monotonic clock."""

    next: int
    done: int = 0
    began: float = 0.0
    last: float = 0.0


def _for_seconds(mode: str, start: int, seconds: float) -> float:
    """Numbers/s of the GPU over leases of about a second, two at a time; the first ones are not counted."""
    kernel, lock = registry.kernel("collatz", Device.GPU), threading.Lock()
    grain = BLOCK if mode == "verify" else 2**22
    leased = Leased(next=start)
    ends = time.monotonic() + 2 + seconds

    def lane() -> None:
        size = grain
        while time.monotonic() < ends:
            with lock:
                at, leased.next = leased.next, leased.next + size
            began = time.monotonic()
            kernel.run(_spec(mode, at, size), 0, size, lambda _: True)
            now = time.monotonic()
            with lock:
                if not leased.began and now > ends - seconds:
                    leased.began = now
                elif leased.began:
                    leased.done += size
                    leased.last = now
            size = max(grain, min(8 * size, int(size / max(now - began, 1e-3))) // grain * grain)

    lanes = [threading.Thread(target=lane) for _ in range(2)]
    for one in lanes:
        one.start()
    for one in lanes:
        one.join()
    return leased.done / (leased.last - leased.began)


def _on_cpu(mode: str, start: int, count: int) -> float:
    kernel = registry.kernel("collatz", Device.CPU)
    kernel.run(_spec(mode, start, 2**24), 0, 2**24, lambda _: True)
    began = time.perf_counter()
    kernel.run(_spec(mode, start, count), 0, count, lambda _: True)
    return count / (time.perf_counter() - began)


def _busy() -> float:
    """Mean utilization that NVML tells, 10 times a second, while two lanes work."""
    from jobs.worker.telemetry.nvml import Nvml

    nvml, seen, over = Nvml(), [], threading.Event()
    uuid = nvml.gpus()[0].uuid

    def look() -> None:
        over.wait(4)
        while not over.wait(0.1):
            sample = nvml.sample(uuid)
            if sample.utilization_ratio is not None:
                seen.append(sample.utilization_ratio)

    watching = threading.Thread(target=look)
    watching.start()
    _for_seconds("verify", 2**40, BUSY_SECONDS)
    over.set()
    watching.join()
    return mean(seen)


def run() -> list[Row]:
    device = gpus.first("P4")
    if device is None:
        return []
    registry.warm("collatz", Device.GPU)
    rows = []
    for point, mode, start, count in POINTS:
        ours, peer = _for_seconds(mode, start, SECONDS), _on_cpu(mode, start, count)
        print(f"P4@{point}: {ours:.4g} numbers/s on {device.name}", file=sys.stderr)
        name = f"one core; GPU: {device.name}"
        rows.append(Row(id=f"P4@{point}", ours=ours, peer=peer, unit="numbers/s", peer_name=name))
    busy = _busy()
    rows.append(Row(id="P4@busy", ours=busy, peer=0.95, unit="of the time", peer_name="the goal"))
    return rows
