"""P4: threads/s simulated by one GPU, over one core of the same machine. Without a GPU there are no rows."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import gpus
from benchmarks.measure import Row
from jobs.kinds import registry
from jobs.models import Device, Plan

#: Models on 8 cores. Threads that hold their cores while they wait rarely deadlock at a depth of 1 under lifo.
MODELS: dict[str, dict[str, Any]] = {
    "fifo-8": {"scheduler": "fifo", "join": "none"},
    "work_stealing-8": {"scheduler": "work_stealing"},
    "round_robin-8": {"scheduler": "round_robin", "quantum_us": 50},
    "block-8": {"scheduler": "lifo", "join": "block", "max_depth": 1},
}
#: Threads simulated by the GPU's two lanes, and by the core.
GPU_THREADS, CORE_THREADS = 3e9, 1e7
#: Replicas that size the launches; they are not timed.
WARM_REPLICAS = 2**17


def _plan(model: dict[str, Any]) -> Plan:
    definition: Any = registry.definition("thread")
    asked = {"cores": 8, "seed": 1, "replicas": 2**24, **model}
    plan: Plan = definition.plan(definition.parameters.model_validate(asked))
    return plan


def _rate(plan: Plan, device: Device, lanes: int, threads: float) -> float:
    """Simulated threads/s of about as many threads as asked for, by lanes at once as a worker has them."""
    registry.warm("thread", device)
    kernel = registry.kernel("thread", device)
    count = int(threads / plan.spec["expected_threads"] / lanes)

    def lane(number: int) -> int:
        lo = WARM_REPLICAS + number * count
        cell = kernel.run(plan.spec, lo, lo + count, lambda _: True)[1]["cells"]["0"]
        return sum(cell["depth_sum"])

    kernel.run(plan.spec, 0, min(count, WARM_REPLICAS), lambda _: True)
    with ThreadPoolExecutor(lanes) as pool:
        began = time.perf_counter()
        done = sum(pool.map(lane, range(lanes)))
        return done / (time.perf_counter() - began)


def _row(name: str, gpu_name: str) -> Row:
    plan = _plan(MODELS[name])
    ours, peer = _rate(plan, Device.GPU, 2, GPU_THREADS), _rate(plan, Device.CPU, 1, CORE_THREADS)
    peer_name = f"one core; GPU: {gpu_name}"
    return Row(id=f"P4@{name}", ours=ours, peer=peer, unit="threads/s", peer_name=peer_name)


def run() -> list[Row]:
    device = gpus.first("P4")
    return [_row(name, device.name) for name in MODELS] if device else []
