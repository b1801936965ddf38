"""Tests that no port is open to the network without a token: which settings can start, and the error messages."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge

from deploy.local import commands, outcome
from jobs import metrics_server
from jobs.network import exposure
from jobs.settings import Settings
from tests import fetch
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]

CLOSED: list[dict[str, Any]] = [
    {},
    {"bind": "localhost"},
    {"bind": "::1"},
    {"bind": "127.8.0.1"},
    {"bind": "0.0.0.0", "published": "loopback"},
    {"bind": "0.0.0.0", "published": "127.0.0.1"},
    {"bind": "0.0.0.0", "cluster_token": "t", "metrics_port": 0},
    {"bind": "0.0.0.0", "cluster_token": "t", "metrics_token": "m"},
    {"bind": "0.0.0.0", "cluster_token": "t", "metrics_published": "internal"},
    {"bind": "0.0.0.0", "published": "0.0.0.0", "cluster_token": "t", "metrics_published": "internal"},
    {"published": "0.0.0.0", "cluster_token": "t", "metrics_published": "127.0.0.1"},
]
OPEN: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"bind": "0.0.0.0"}, ("API", "CLUSTER_TOKEN", "BIND=127.0.0.1", "PUBLISHED=loopback", "METRICS_TOKEN")),
    ({"bind": "::", "metrics_port": 0}, ("API", "CLUSTER_TOKEN", "BIND=127.0.0.1")),
    ({"bind": "192.168.1.7", "metrics_port": 0}, ("192.168.1.7",)),
    ({"bind": "myhost", "metrics_port": 0}, ("myhost",)),
    ({"published": "0.0.0.0", "metrics_published": "internal"}, ("API",)),
    ({"bind": "0.0.0.0", "published": "internal", "metrics_port": 0}, ("API",)),
    ({"bind": "0.0.0.0", "cluster_token": "t"}, ("METRICS_TOKEN", "METRICS_PORT=0", "METRICS_PUBLISHED=internal")),
    ({"metrics_published": "0.0.0.0"}, ("METRICS_TOKEN",)),
]


@pytest.mark.parametrize("given", CLOSED, ids=str)
def test_what_only_friends_reach_starts(given: dict[str, Any]) -> None:
    exposure.check(Settings(**given))


@pytest.mark.parametrize(("given", "words"), OPEN, ids=str)
def test_what_strangers_reach_is_refused_with_the_ways_out(given: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(exposure.ExposureError) as caught:
        exposure.check(Settings(**given))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("module", ["coordinator", "cpu_worker", "gpu_worker"])
def test_every_process_refuses_to_listen_for_strangers(module: str) -> None:
    told = started(module, BIND="0.0.0.0")
    assert told.returncode == exposure.REFUSED == 2
    assert "METRICS_TOKEN" in told.stderr and ("CLUSTER_TOKEN" in told.stderr) == (module == "coordinator")
    assert "Traceback" not in told.stderr


def test_the_local_cluster_refuses_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(outcome.CommandError, match="CLUSTER_TOKEN") as caught:
        commands.check_exposure(Settings(bind="0.0.0.0"))
    assert caught.value.code == outcome.USAGE
    commands.check_exposure(Settings())


def started(module: str, **environment: str) -> subprocess.CompletedProcess[str]:
    port = str(free_port())
    given = {**os.environ, "COORDINATOR_PORT": port, "REDIS_URL": "redis://127.0.0.1:1/0", **environment}
    command = [sys.executable, "-m", module]
    return subprocess.run(command, env=given, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_metrics_with_a_token_are_read_with_it_alone() -> None:
    registry = CollectorRegistry()
    Gauge("told", "A figure.", registry=registry).set(7)
    port = free_port()
    stop = metrics_server.serve(registry, Settings(metrics_port=port, metrics_token="secret"))
    try:
        url = f"http://127.0.0.1:{port}/metrics"
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            answer = fetch.get(url, headers=headers)
            assert answer.status_code == 401 and "told" not in answer.text
            assert answer.headers["www-authenticate"] == "Bearer" and "METRICS_TOKEN" in answer.text
        assert "told 7.0" in fetch.get(url, headers={"Authorization": "Bearer secret"}).text
    finally:
        stop()


def test_a_metrics_port_answers_instant_queries_for_one_name_and_no_other_paths() -> None:
    registry = CollectorRegistry()
    leases = Gauge("leases", "Leases.", ["device"], registry=registry)
    leases.labels("cpu").set(7)
    leases.labels("gpu").set(float("inf"))
    port = free_port()
    stop = metrics_server.serve(registry, Settings(metrics_port=port))

    def ask(query: str) -> tuple[int, Any]:
        answer = fetch.get(f"http://127.0.0.1:{port}/api/v1/query", params={"query": query})
        return answer.status_code, answer.json()

    try:
        status, answer = ask("leases")
        values = [(each["metric"], each["value"][1]) for each in answer["data"]["result"]]
        assert (status, answer["status"], answer["data"]["resultType"]) == (200, "success", "vector")
        assert values == [
            ({"__name__": "leases", "device": "cpu"}, "7"),
            ({"__name__": "leases", "device": "gpu"}, "+Inf"),
        ]
        assert abs(answer["data"]["result"][0]["value"][0] - time.time()) < 60
        assert ask("missing") == (200, {"status": "success", "data": {"resultType": "vector", "result": []}})
        for query in ("", "sum(leases)", 'leases{device="cpu"}', "leases or up"):
            status, answer = ask(query)
            assert (status, answer["status"], answer["errorType"]) == (400, "error", "bad_data")
        for path in ("/", "/metrics/", "/api/v1/query_range", "/x"):
            assert fetch.get(f"http://127.0.0.1:{port}{path}").status_code == 404
    finally:
        stop()


def test_metrics_without_a_token_are_read_as_ever() -> None:
    port = free_port()
    stop = metrics_server.serve(CollectorRegistry(), Settings(metrics_port=port))
    try:
        assert fetch.get(f"http://127.0.0.1:{port}/metrics").status_code == 200
    finally:
        stop()


def test_metrics_on_loopback_are_not_read_by_a_page_whose_name_resolves_to_it() -> None:
    port = free_port()
    stop = metrics_server.serve(CollectorRegistry(), Settings(metrics_port=port, allowed_hosts="metrics.example"))
    try:
        hosts = (f"localhost:{port}", "[::1]", "metrics.example", "evil.example", "")
        asked = (fetch.get(f"http://127.0.0.1:{port}/metrics", headers={"Host": host}) for host in hosts)
        assert [answer.status_code for answer in asked] == [200, 200, 200, 403, 403]
    finally:
        stop()
