"""P4: threads/s simulated by one GPU, over one core of the same machine. Without a GPU there are no rows."""

from __future__ import annotations

import time
from typing import Any

from benchmarks import gpus
from benchmarks.measure import Row
from jobs.kinds import registry
from jobs.models import Device, Plan

#: Models on 8 cores; those of a deep tree whose threads hold their cores would all deadlock.
MODELS: dict[str, dict[str, Any]] = {
    "fifo-8": {"scheduler": "fifo", "join": "none"},
    "work_stealing-8": {"scheduler": "work_stealing"},
    "round_robin-8": {"scheduler": "round_robin", "quantum_us": 50},
    "block-8": {"scheduler": "fifo", "join": "block", "thread_count": 7, "max_depth": 1},
}
#: Threads simulated on the GPU, and on the core: seconds of each.
GPU_THREADS, CORE_THREADS = 1.2e9, 3e7
WARM_REPLICAS = 2048


def _plan(model: dict[str, Any]) -> Plan:
    definition: Any = registry.definition("thread")
    asked = {"cores": 8, "seed": 1, "replicas": 2**24, **model}
    plan: Plan = definition.plan(definition.Parameters.model_validate(asked))
    return plan


def _rate(plan: Plan, device: Device, threads: float) -> float:
    """Simulated threads/s of about as many threads as asked for."""
    kernel = registry.kernel("thread", device)
    count = min(int(threads / plan.spec["expected_threads"]), plan.total - WARM_REPLICAS)
    kernel.run(plan.spec, 0, min(count, WARM_REPLICAS), lambda _: True)
    began = time.perf_counter()
    _, partial = kernel.run(plan.spec, WARM_REPLICAS, WARM_REPLICAS + count, lambda _: True)
    return float(sum(partial["cells"]["0"]["depth_sum"])) / (time.perf_counter() - began)


def _row(name: str, gpu_name: str) -> Row:
    plan = _plan(MODELS[name])
    ours, peer = _rate(plan, Device.GPU, GPU_THREADS), _rate(plan, Device.CPU, CORE_THREADS)
    peer_name = f"one core; GPU: {gpu_name}"
    return Row(id=f"P4@{name}", ours=ours, peer=peer, ratio=ours / peer, unit="threads/s", peer_name=peer_name)


def run() -> list[Row]:
    device = gpus.first("P4")
    return [_row(name, device.name) for name in MODELS] if device else []
