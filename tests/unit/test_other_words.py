"""Tests the cluster's start, status and GPUs with the commands and units of PyCluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.telemetry import history
from jobs.store import keys
from tests.unit.test_webhooks import Api

GPU = {
    "uuid": "GPU-1",
    "index": 0,
    "name": "H100",
    "memory_total_bytes": 24 << 30,
    "memory_used_bytes": 18 << 30,
    "utilization_ratio": 0.87,
    "temperature_celsius": 72.0,
    "power_watts": 380.0,
}


@pytest.fixture
def api(any_redis_url: str) -> Iterator[Api]:
    api = Api(any_redis_url)
    yield api
    api.store.client.close()


def live(api: Api, name: str, device: str, **facts: Any) -> None:
    """Let a worker send one heartbeat."""
    row = {"device": device, "state": "idle", "lanes": 1, "host": "h", **facts}
    api.store.fleet.heartbeat(name, api.store.fleet.birth(), row)


def start(api: Api, **body: Any) -> Any:
    return api.ask("POST", "/api/cluster/start", body)


def test_enough_workers_are_answered_with_the_status(api: Api) -> None:
    for device in ("cpu", "gpu", "runner"):
        live(api, f"{device}-1", device)
    answer = start(api, cluster_name="mine", n_workers=2)
    assert answer.status_code == 200 and answer.json()["workers"]["live"] == 3
    assert answer.json() == api.ask("GET", "/api/cluster/status").json() == api.ask("GET", "/api/status").json()
    assert start(api, n_workers=1, worker_resources={"GPU": 1}).status_code == 200


@pytest.mark.parametrize(
    ("body", "field", "command"),
    [
        ({}, "n_workers", "1 worker is live, 0 of them on GPUs; start them with ./deploy-cluster.sh local --workers 4"),
        ({"n_workers": 2}, "n_workers", "or in containers ./deploy-cluster.sh docker 2 0"),
        ({"n_workers": 1, "worker_resources": {"GPU": 2}}, "worker_resources.GPU", "./deploy-cluster.sh docker 2 2"),
        ({"n_workers": 3, "worker_resources": {"GPU": 0.0}}, "n_workers", "./deploy-cluster.sh local --workers 3"),
    ],
)
def test_fewer_are_a_conflict_that_names_the_command(api: Api, body: Any, field: str, command: str) -> None:
    live(api, "cpu-1", "cpu")
    live(api, "runner-1", "runner")
    answer = start(api, **body)
    assert (answer.status_code, answer.json()["field"]) == (409, field) and command in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"n_workers": 0}, "n_workers"),
        ({"n_workers": 10_001}, "n_workers"),
        ({"n_workers": "4"}, "n_workers"),
        ({"cluster_name": "x" * 65}, "cluster_name"),
        ({"workers": 4}, "workers"),
        ({"worker_resources": {"TPU": 1}}, "worker_resources"),
        ({"worker_resources": {"GPU": 0.5}}, "worker_resources.GPU"),
        ({"worker_resources": {"GPU": -1}}, "worker_resources.GPU"),
        ({"worker_resources": {"GPU": 65}}, "worker_resources.GPU"),
    ],
)
def test_what_cannot_be_started_is_named(api: Api, body: Any, field: str) -> None:
    answer = start(api, **body)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


def test_gpus_are_shown_in_gibibytes_and_percent(api: Api) -> None:
    assert api.ask("GET", "/api/llm/gpu/status").json() == {
        "summary": {"available": False, "count": 0, "gpus": []},
        "recent_metrics": [],
    }
    live(api, "runner-1", "runner", gpus=json.dumps([GPU | {"job": "j1"}]))
    alone = api.ask("GET", "/api/llm/gpu/status").json()
    assert [(gpu["name"], gpu["utilization"]) for gpu in alone["summary"]["gpus"]] == [("H100", 87.0)]
    [seen] = api.ask("GET", "/api/snapshot").json()["gpus"]
    assert (seen["worker"], seen["job"], seen["temperature_celsius"]) == ("runner-1", "j1", 72.0)
    live(api, "gpu-1", "gpu", gpus=json.dumps([GPU, {"uuid": "GPU-2"}]))
    now = int(time.time())
    figures = {"gpu.GPU-1.utilization": 0.5, "gpu.GPU-1.memory": 6 << 30, "gpu.GPU-9.power": 100.0}
    history.append(api.store, now - 5, figures)
    shown = api.ask("GET", "/api/llm/gpu/status").json()
    known = {"memory_total": 24.0, "memory_used": 18.0, "utilization": 87.0, "temperature": 72.0, "power_usage": 380.0}
    nothing = dict.fromkeys(known)
    assert shown["summary"] == {
        "available": True,
        "count": 2,
        "gpus": [{"id": 0, "name": "H100", **known}, {"id": 1, "name": "", **nothing}],
    }
    assert shown["recent_metrics"] == [
        {"timestamp": now - 5, "id": 0, **nothing, "utilization": 50.0, "memory_used": 6.0}
    ]


def test_they_need_a_token_that_reads(api: Api) -> None:
    infers = api.token("infer")
    for method, path in (
        ("POST", "/api/cluster/start"),
        ("GET", "/api/cluster/status"),
        ("GET", "/api/llm/gpu/status"),
    ):
        assert api.ask(method, path, {} if method == "POST" else None, token=infers).status_code == 403
        assert api.ask(method, path, {} if method == "POST" else None, token="x" * 40).status_code == 401
    assert api.store.client.exists(keys.JOBS) == 0
