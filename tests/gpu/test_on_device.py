"""Tests that only a real GPU can pass: `make gpu-test`. Elsewhere all of this is skipped."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_worker import selftest
from jobs.kinds import gpu, registry
from jobs.models import Device
from tests.gpu.devices import ON_CUDA, device

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not ON_CUDA, reason="needs a GPU: make gpu-test")]

on_cpu: Any = registry.kernel("collatz", Device.CPU)
on_gpu: Any = registry.kernel("collatz", Device.GPU)
BLOCK = 2**32


@pytest.fixture(autouse=True, scope="module")
def real_device() -> Iterator[None]:
    gpu.set_device(device())
    yield
    gpu.set_device(None)


def spec(mode: str, start: int, count: int) -> dict[str, Any]:
    return {"mode": mode, "start": str(start), "count": count, "batch_size": None}


def computed(kernel: Any, job: dict[str, Any]) -> Any:
    return kernel.run(job, 0, job["count"], lambda _: True)[1]


def test_it_knows_what_a_worker_must_know() -> None:
    assert selftest.run("collatz") > 0


@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize(("mode", "size"), [("statistics", 2**28), ("verify", 2**36)])
def test_random_ranges_answer_bit_for_bit_as_cpus_do(mode: str, size: int, number: int) -> None:
    dice = random.Random(f"{mode} {number} {time.time_ns() if number > 5 else ''}")
    most = 2 ** dice.randrange(size.bit_length(), 96)
    job = spec(mode, dice.randrange(1, most), dice.randrange(size // 8, size))
    print(json.dumps(job))
    assert computed(on_gpu, job) == computed(on_cpu, job)


@pytest.mark.parametrize("start", [BLOCK, 2**42 - 3 * BLOCK, 2**64 - 2 * BLOCK, 2**95])
def test_many_blocks_in_one_launch_answer_as_cpus_do(start: int) -> None:
    job = spec("verify", start, 24 * BLOCK)
    assert computed(on_gpu, job) == computed(on_cpu, job)


def test_two_lanes_at_once_answer_as_one() -> None:
    jobs = [spec("verify", 2**50 + at * 40 * BLOCK, 40 * BLOCK) for at in range(8)]
    with ThreadPoolExecutor(2) as lanes:
        at_once = list(lanes.map(lambda job: computed(on_gpu, job), jobs))
    assert at_once == [computed(on_gpu, job) for job in jobs]


def test_launches_are_short_enough_to_be_stopped() -> None:
    told: list[float] = []

    def tick(_: int) -> bool:
        told.append(time.monotonic())
        return len(told) < 30

    on_gpu.run(spec("verify", 2**60, 2**52), 0, 2**52, tick)
    gaps = np.diff(told[10:])
    assert gaps.max() < 0.5, f"a launch took {gaps.max():.3f} s"


def test_more_memory_than_there_is_is_said() -> None:
    with pytest.raises(gpu.OutOfMemory):
        gpu.current_device().zeros(2**50, np.uint64)
    assert gpu.current_device().get(gpu.current_device().zeros(3, np.uint64)).tolist() == [0, 0, 0]


def test_a_wide_argument_arrives_whole(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void keep(unsigned long long x, unsigned long long* to) { to[threadIdx.x] = x; }\n'
    (tmp_path / "keep.cu").write_text(source)
    kept = gpu.current_device().zeros(32, np.uint64)
    gpu.kernels(gpu.Source(tmp_path / "keep.cu"))("keep", 1, 32, 2**64 - 3, kept)
    assert set(gpu.current_device().get(kept).tolist()) == {2**64 - 3}


SCHEDULES = [
    *((scheduler, join) for scheduler in ("fifo", "lifo") for join in ("none", "suspend", "block")),
    *((scheduler, join) for scheduler in ("round_robin", "work_stealing") for join in ("none", "suspend")),
]


@pytest.mark.parametrize(("scheduler", "join"), SCHEDULES)
def test_random_simulations_answer_bit_for_bit_as_cpus_do(scheduler: str, join: str) -> None:
    dice, definition = random.Random(f"{scheduler} {join}"), registry.definition("thread")
    parameters: dict[str, Any] = {
        "scheduler": scheduler,
        "join": join,
        "replicas": 2000,
        "seed": dice.randrange(2**53),
        "cores": [dice.randrange(1, 65), 8],
        "thread_count": dice.randrange(1, 1000),
        "steal_cost_us": dice.choice([0.05, 1, 20]),
    }
    if scheduler == "round_robin":
        parameters["quantum_us"] = dice.choice([20, 100, 1000])
    if join == "block":
        parameters["thread_count"] = dice.randrange(1, 6)
    if join != "none":
        parameters["join_cost_us"] = dice.choice([0, 0.4])
    if dice.random() < 0.5:
        parameters["arrival"] = {"process": "poisson", "rate_per_ms": 60}
    print(json.dumps(parameters))
    plan = definition.plan(definition.parameters.model_validate(parameters))
    assert Device.GPU in plan.devices
    found, expected = (
        registry.kernel("thread", where).run(plan.spec, 0, plan.total, lambda _: True)[1]
        for where in (Device.GPU, Device.CPU)
    )
    assert found == expected


def test_a_real_worker_computes_in_a_real_cluster(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    from tests.integration.live import Live, until
    from tests.redis_servers import any_server

    if any_server() is None:
        pytest.skip("there is no redis-server of version 7 or later")
    live = Live(tmp_path, workers=0)
    try:
        live.start()
        live.start_process(
            "gpu-0", [sys.executable, "-m", "gpu_worker"], WORKER_ID="gpu-0", METRICS_PORT="0", GPU_ENABLED="true"
        )
        until(lambda: live.get("/api/status")["workers"]["ready"] == 1, 300)
        job = spec("verify", 2**50, 2**44)
        parameters = {"mode": "verify", "start_number": job["start"], "number_count": job["count"]}
        result = live.result(live.submit("collatz", parameters, device="gpu"), 120)
        partial = computed(on_gpu, job)
        assert (int(result["checksum"]), int(result["candidates"])) == (partial["checksum"], partial["candidates"])
        (shown,) = live.get("/api/workers")["workers"][0]["gpus"]
        assert shown["memory_used_bytes"] > 0 and shown["uuid"].startswith("GPU-")
    finally:
        live.stop()
