"""P4: threads/s simulated by one GPU, over one core of the same machine. Without a GPU there are no rows."""

from __future__ import annotations

import time
from typing import Any

from benchmarks import gpus
from benchmarks.measure import Row
from jobs.kinds import registry
from jobs.models import Device


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
    device = gpus.first("P4")
    return [_threads(device.name)] if device else []
