"""Tests a lane of a GPU worker: limits of a launch, handling of failures, and detection of hanging launches."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_worker import lane as lanes
from jobs import errors
from jobs.kinds import gpu
from jobs.store.work.leases import Grant
from jobs.store.work.slots import JobFacts
from jobs.worker import execution
from jobs.worker.execution import Computed
from jobs.worker.lanes import LaneDied, Task


def task(spec: dict[str, Any]) -> Task:
    facts = JobFacts(job_id="j", kind="k", spec=spec, queue="", total=9, expected_rate=1.0, nominal_rate=1.0)
    return Task(facts, Grant(token="t", lo=0, hi=9))


def failing(cause: Exception) -> Any:
    def compute(*_: Any) -> Any:
        raise errors.KernelFailed("k on gpu") from cause

    return compute


def test_the_smaller_limit_of_job_and_worker_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def compute(kind: Any, device: Any, spec: Any, *_: Any) -> Computed:
        seen.append(spec["batch_size"])
        return Computed(upto=9, partial={}, seconds=0.1)

    monkeypatch.setattr(execution, "compute", compute)
    for most, asked in ((0, None), (0, 5), (7, None), (7, 5), (7, 50)):
        lanes.StreamLane("0", most, lambda why: None).compute(task({"batch_size": asked}))
    assert seen == [None, 5, 7, 5, 7]


def test_a_device_that_fails_retires_the_worker_and_a_kernel_that_fails_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    lane = lanes.StreamLane("0", 0, told.append)
    monkeypatch.setattr(execution, "compute", failing(ValueError("bug")))
    with pytest.raises(errors.KernelFailed):
        lane.compute(task({}))
    assert not told
    monkeypatch.setattr(execution, "compute", failing(gpu.DeviceLost("ECC error")))
    with pytest.raises(LaneDied):
        lane.compute(task({}))
    assert told == ["the GPU failed: ECC error"]


def test_what_a_sick_device_computed_is_given_back_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "compute", lambda *_: Computed(upto=9, partial={}, seconds=0.1))
    monkeypatch.setattr(execution, "compute_small_job", lambda *_: None)
    monkeypatch.setattr(lanes, "POLL_SECONDS", 0.0)
    faults: list[str] = []
    lane = lanes.StreamLane("0", 0, lambda why: None, lambda: "".join(faults), lambda: "".join(faults))
    facts = task({}).facts
    assert lane.ready and lane.compute(task({}))[0].upto == 9 and len(lane.compute_small([facts])) == 1
    faults.append("Xid 79")
    assert not lane.ready
    for compute in (lambda: lane.compute(task({})), lambda: lane.compute_small([facts])):
        with pytest.raises(LaneDied, match="Xid 79") as died:
            compute()
        assert not died.value.touched
    lane.repair()


def test_a_launch_that_outlives_a_stop_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "HANG_SECONDS", 0.5)
    going, stopped, ended = task({}), task({}), threading.Event()
    server: Any = SimpleNamespace(tasks={"a": going})
    why: list[str] = []

    def end(reason: str) -> None:
        why.append(reason)
        ended.set()

    watching = threading.Thread(target=lanes.watch, args=(server, end, ended))
    watching.start()
    time.sleep(1.3)
    assert not why
    stopped.ask_to_stop(2)
    server.tasks["b"] = stopped
    watching.join(30)
    assert why == ["a launch of job j did not finish within 0 s"]
