"""Tests the scaling of services by the number of requests, down to zero and up again on request."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.services import scaling
from coordinator.services.scaling import DOWN_MS, NOTE_MS, Change
from jobs.store.services import Service
from tests.unit.service_requests import stored_request

NOW = 10_000_000


def service(asked: dict[str, Any], **more: Any) -> Service:
    plain = Service(
        service_id="a",
        tenant="default",
        name="chat",
        engine="http",
        asked=json.dumps(stored_request(**asked)),
        asked_at=NOW,
        needed_at=NOW,
    )
    return replace(plain, **more)


def by_load(least: int = 1, most: int = 4, target: float = 2, **more: Any) -> Service:
    return service({"autoscale": {"min": least, "max": most, "target": target}}, **more)


def sleeper(seconds: float = 60, **more: Any) -> Service:
    return service({"idle_seconds": seconds}, **more)


def test_a_service_without_scaling_keeps_its_number_and_never_sleeps() -> None:
    plain = service({}, replicas=3, asked_at=0, needed_at=0)
    assert scaling.wanted(plain, NOW) == 3 and scaling.change(plain, NOW) is None


@pytest.mark.parametrize(("demand", "count"), [(0, None), (2, None), (3, 2), (4, 2), (5, 3), (8, 4), (800, 4)])
def test_more_begin_at_once_as_many_as_the_requests_need(demand: int, count: int | None) -> None:
    assert scaling.change(by_load(demand=demand), NOW) == (count and Change(replicas=count, needed_at=NOW))


def test_one_goes_after_a_minute_in_which_fewer_were_enough_and_the_next_a_minute_later() -> None:
    one = by_load(replicas=4, demand=2)
    assert scaling.change(one, NOW + DOWN_MS - 1) is None
    assert scaling.change(one, NOW + DOWN_MS) == Change(replicas=3, needed_at=NOW + DOWN_MS)
    assert scaling.change(by_load(least=4, replicas=4), NOW + DOWN_MS) is None


def test_that_all_are_needed_is_noted_now_and_then() -> None:
    busy = by_load(replicas=2, demand=4)
    assert scaling.change(busy, NOW + NOTE_MS - 1) is None
    assert scaling.change(busy, NOW + NOTE_MS) == Change(replicas=2, needed_at=NOW + NOTE_MS)
    assert scaling.change(by_load(replicas=1, demand=2), NOW + DOWN_MS) is None, "none goes, so nothing is to be noted"


def test_a_stopped_service_is_not_scaled() -> None:
    assert scaling.change(by_load(demand=100, stopped=True), NOW) is None


def test_a_service_sleeps_after_its_time_without_a_request_and_not_while_it_has_one() -> None:
    assert scaling.wanted(sleeper(replicas=2), NOW + 59_999) == 2
    assert scaling.wanted(sleeper(replicas=2), NOW + 60_000) == 0
    assert scaling.wanted(sleeper(replicas=2, demand=1), NOW + 10**9) == 2
    assert scaling.wanted(sleeper(replicas=0), NOW) == 1, "whoever asks one that was scaled to none starts one"
    assert scaling.wanted(sleeper(stopped=True), NOW) == 0


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(1, 3), st.integers(3, 9), st.floats(0.5, 9))
def test_any_load_keeps_it_between_its_numbers_and_no_load_ends_at_the_least(
    loads: list[int], least: int, most: int, target: float
) -> None:
    one, now = by_load(least, most, target, replicas=least), NOW
    for load in loads + [0] * (DOWN_MS // 1000 * most + most):
        now += 1000
        one = replace(one, demand=load)
        if changed := scaling.change(one, now):
            one = replace(one, replicas=changed.replicas, needed_at=changed.needed_at)
        assert least <= one.replicas <= most and one.replicas * target >= min(load, most * target)
    assert one.replicas == least
