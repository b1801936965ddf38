"""Tests that each of a lane's small jobs is finished with its share of a GPU's time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.models import Device
from jobs.store.work.leases import Finished
from jobs.store.work.slots import JobFacts
from jobs.worker import small_jobs
from jobs.worker.execution import SmallJobResult
from jobs.worker.telemetry.meter import Share


@pytest.mark.parametrize(("device", "expected"), [(Device.GPU, 6), (Device.CPU, 0)])
def test_the_time_of_a_gpu_is_shared_out_over_small_jobs_and_nothing_is_lost_by_rounding(
    device: Device, expected: int
) -> None:
    ended: list[Finished] = []
    leases = SimpleNamespace(done1_all=lambda finished, **_: ended.extend(finished))
    state: Any = SimpleNamespace(
        device=device, worker="g", store=SimpleNamespace(leases=leases), persist=lambda call: call()
    )
    results: list[Any] = [SmallJobResult(result=b"1", marks="[]", seconds=0.0003) for _ in range(20)]
    work = [
        (JobFacts(job_id=f"j{n}", kind="k", spec={}, queue="", total=1, expected_rate=1, nominal_rate=1), f"t{n}")
        for n in range(20)
    ]
    small_jobs.finish(state, work, results, Share(seconds=0.006))
    assert sum(one.device_ms for one in ended) == expected and len(ended) == 20
    assert max(one.device_ms for one in ended) <= 1
