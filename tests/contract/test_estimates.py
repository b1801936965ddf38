"""Tests that a kind's estimate is within ten times the real time, because it decides which jobs are small."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coordinator.jobs import scheduler
from jobs.kinds import registry
from jobs.kinds.thread import cpu_reduction, sizes
from jobs.models import Device, Plan

ARRIVALS = {"process": "poisson", "rate_per_ms": 1}
#: Of each, what an estimate once left out: chunks, idle cores, roots of a trace; launches, columns, ends, points.
ODD: list[tuple[str, dict[str, Any]]] = [
    ("thread", {"replicas": 200, "thread_count": 1, "max_depth": 0, "batch_size": 1}),
    ("thread", {"replicas": 200, "thread_count": 20, "batch_size": 1}),
    ("thread", {"replicas": 20_000, "thread_count": 1, "max_depth": 0, "cores": 64}),
    ("thread", {"replicas": 60, "thread_count": 1000, "max_depth": 2, "cores": 64, "arrival": ARRIVALS}),
    ("thread", {"replicas": 1, "thread_count": 30_000, "max_depth": 2, "trace": {"max_events": 1000}}),
    ("collatz", {"start_number": 10**12, "number_count": 20_000, "batch_size": 1}),
    ("collatz", {"start_number": 1, "number_count": 100_000}),
    ("collatz", {"start_number": 1, "number_count": 5000, "columns": 4096}),
    ("collatz", {"start_number": 2**90, "number_count": 100_000, "columns": 512, "density": True}),
    ("collatz", {"mode": "verify", "start_number": 2**95, "number_count": 10**7}),
    ("collatz", {"mode": "records", "start_number": 1, "number_count": 100_000}),
    ("collatz", {"mode": "trajectory", "n": 10**1000 - 1, "max_points": 100_000}),
]


def plan(kind: str, parameters: dict[str, Any]) -> Plan:
    definition = registry.definition(kind)
    return definition.plan(definition.parameters.model_validate(parameters))


@pytest.mark.parametrize(("kind", "parameters"), ODD)
def test_an_odd_job_takes_about_what_was_estimated(kind: str, parameters: dict[str, Any]) -> None:
    """The test compares CPU seconds of the better of two runs, so that other processes do not count."""
    kernel, planned = registry.kernel(kind, Device.CPU), plan(kind, parameters)
    kernel.warm()
    took = []
    for _ in range(2):
        began = time.process_time()
        kernel.run(planned.spec, 0, planned.total, lambda _: True)
        took.append(time.process_time() - began)
    assert min(took) / 10 < planned.cpu_seconds < min(took) * 10 + 0.001


def test_a_job_of_many_chunks_is_not_small() -> None:
    job = {"replicas": 70_000, "thread_count": 1, "max_depth": 0, "scheduler": "fifo", "cores": 1}
    assert scheduler.is_small(plan("thread", job))
    assert not scheduler.is_small(plan("thread", {**job, "batch_size": 1}))
    assert sizes.CHUNK_REPLICAS == cpu_reduction.MOST_ROWS
