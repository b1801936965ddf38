"""P4: numbers/s of one GPU, over one core of the same machine; and how busy two lanes keep it.

Without a GPU there are no rows. `python -m benchmarks.p4_gpu`, which is `make gpu-bench`, then fails.
"""

from __future__ import annotations

import sys
import threading
import time
from statistics import mean
from typing import Any

from benchmarks.measure import Row
from jobs.kinds import gpu, registry
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


def _for_seconds(mode: str, start: int, seconds: float) -> float:
    """Numbers/s of the GPU over leases of about a second, two at a time; the first ones are not counted."""
    kernel, lock = registry.kernel("collatz", Device.GPU), threading.Lock()
    grain = BLOCK if mode == "verify" else 2**22
    state = {"next": start, "done": 0, "began": 0.0}
    ends = time.monotonic() + 2 + seconds

    def lane() -> None:
        size = grain
        while time.monotonic() < ends:
            with lock:
                at, state["next"] = state["next"], state["next"] + size
            began = time.monotonic()
            kernel.run(_spec(mode, at, size), 0, size, lambda _: True)
            now = time.monotonic()
            with lock:
                if not state["began"] and now > ends - seconds:
                    state["began"] = now
                elif state["began"]:
                    state["done"] += size
                    state["last"] = now
            size = max(grain, min(8 * size, int(size / max(now - began, 1e-3))) // grain * grain)

    lanes = [threading.Thread(target=lane) for _ in range(2)]
    for one in lanes:
        one.start()
    for one in lanes:
        one.join()
    return state["done"] / (state["last"] - state["began"])


def _on_cpu(mode: str, start: int, count: int) -> float:
    kernel = registry.kernel("collatz", Device.CPU)
    kernel.run(_spec(mode, start, 2**24), 0, 2**24, lambda _: True)
    began = time.perf_counter()
    kernel.run(_spec(mode, start, count), 0, count, lambda _: True)
    return count / (time.perf_counter() - began)


def _busy() -> float:
    """Mean utilization that NVML tells, 10 times a second, while two lanes work."""
    from gpu_worker.nvml import Nvml

    nvml, seen, over = Nvml(), [], threading.Event()
    uuid = nvml.found()[0].uuid

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


def _threads(gpu_name: str) -> Row:
    """Simulated threads/s, fifo on 8 cores: many replicas on the GPU over some on one core."""
    definition: Any = registry.definition("thread")
    asked = {"scheduler": "fifo", "cores": 8, "join": "none", "seed": 1, "replicas": 2**20}
    plan = definition.plan(definition.Parameters.model_validate(asked))

    def rate(device: Device, first: int, count: int) -> float:
        kernel = registry.kernel("thread", device)
        kernel.run(plan.spec, 0, min(count, 2048), lambda _: True)
        began = time.perf_counter()
        _, partial = kernel.run(plan.spec, first, first + count, lambda _: True)
        return float(sum(partial["cells"]["0"]["depth_sum"])) / (time.perf_counter() - began)

    ours, peer = rate(Device.GPU, 4096, 2**18), rate(Device.CPU, 4096, 2**13)
    name = f"one core; GPU: {gpu_name}"
    return Row(id="P4@fifo-8", ours=ours, peer=peer, ratio=ours / peer, unit="threads/s", peer_name=name)


def run() -> list[Row]:
    from gpu_worker.cupy_device import CupyDevice

    try:
        device = CupyDevice("bench")
    except gpu.DeviceLost as error:
        print(f"P4 is left out: {error}", file=sys.stderr)
        return []
    gpu.use(device)
    registry.kernel("collatz", Device.GPU).warm()
    rows = []
    for point, mode, start, count in POINTS:
        ours, peer = _for_seconds(mode, start, SECONDS), _on_cpu(mode, start, count)
        print(f"P4@{point}: {ours:.4g} numbers/s on {device.name}", file=sys.stderr)
        name = f"one core; GPU: {device.name}"
        rows.append(Row(id=f"P4@{point}", ours=ours, peer=peer, ratio=ours / peer, unit="numbers/s", peer_name=name))
    rows.append(_threads(device.name))
    busy = _busy()
    rows.append(Row(id="P4@busy", ours=busy, peer=0.95, ratio=busy / 0.95, unit="of the time", peer_name="the goal"))
    return rows


def main() -> int:
    """Prints the rows; 1 without a GPU."""
    rows = run()
    for row in rows:
        print(f"{row.id:<24}{row.ours:>12.4g} {row.unit}; {row.ratio:.4g} times {row.peer_name} ({row.peer:.4g})")
    if not rows:
        print("error: nothing was measured: there is no GPU that CuPy can use", file=sys.stderr)
    return int(not rows)


if __name__ == "__main__":
    sys.exit(main())
