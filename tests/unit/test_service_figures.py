"""Tests the last-minute measurements of a service: the effect of a request, and medians from counts."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from typing import Any

import pytest

from coordinator.services import usage_statistics
from coordinator.services.usage_statistics import Exchange
from jobs.store.services import RecentUsage
from threads_protocol.answers.services import LastMinute


def exchange(**more: Any) -> Exchange:
    return Exchange(**{"tenant": "default", "model": "chat", "began": 0.0, "status": 200, "seconds": 2.0, **more})


def row(*ended: Exchange, seconds: float = 60.0) -> LastMinute:
    counts = sum(map(usage_statistics.counts, ended), Counter[str]())
    return usage_statistics.row(RecentUsage(seconds=seconds, counts=counts))


def test_nothing_was_asked() -> None:
    found = row()
    assert (found["requests"], found["requests_per_second"], found["median_seconds"]) == (0, 0.0, None)


def test_a_stream_tells_its_times_and_its_speed() -> None:
    found = row(exchange(first_seconds=0.5, prompt_tokens=7, answer_tokens=151), seconds=30.0)
    assert (found["prompt_tokens"], found["answer_tokens"], found["answer_tokens_per_second"]) == (7, 151, 151 / 30)
    assert found["median_seconds"] == pytest.approx(2.0, rel=0.05)
    assert found["median_first_token_seconds"] == pytest.approx(0.5, rel=0.05)
    assert found["median_stream_tokens_per_second"] == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize(("status", "failed"), [(200, 0), (400, 0), (404, 0), (429, 1), (499, 0), (502, 1), (504, 1)])
def test_what_the_cluster_did_not_answer_has_failed_and_has_no_time(status: int, failed: int) -> None:
    found = row(exchange(status=status))
    assert (found["requests"], found["failed"]) == (1, failed)
    assert (found["median_seconds"] is not None) == (status == 200)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-4, 0.001, 1.0, 1.1, 3600.0])
def test_any_time_can_be_counted(seconds: float) -> None:
    median = row(exchange(seconds=seconds))["median_seconds"]
    assert median == pytest.approx(max(seconds, 1e-4), rel=0.05)


@pytest.mark.parametrize("seed", range(20))
def test_a_median_is_right_to_five_per_cent(seed: int) -> None:
    draw = random.Random(seed)
    times = [draw.lognormvariate(0, 2) for _ in range(draw.randrange(1, 200))]
    found = row(*(exchange(seconds=each) for each in times))["median_seconds"]
    assert found == pytest.approx(statistics.median_low(times), rel=0.052)
