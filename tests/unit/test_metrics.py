"""Tests the Prometheus metrics of a coordinator and a worker with a real Redis."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from coordinator.fleet.scaler import Scaler
from coordinator.queries import Queries
from coordinator.services.gateway.request_counter import RequestCounter
from coordinator.services.replica_metrics import Census
from coordinator.services.usage_statistics import Exchange
from coordinator.telemetry.exporter import Exporter
from coordinator.workflows.planning import State
from jobs import VERSION, metrics, queues
from jobs.hosts import measurements
from jobs.kinds import registry
from jobs.models import ANONYMOUS
from jobs.settings import Settings
from jobs.store import Store, keys
from jobs.store.profiles import Profile, Recording
from jobs.store.server import connection
from jobs.store.services import Service
from jobs.worker.telemetry import exporter
from tests.unit.monitoring import ROOT, promtool
from tests.unit.service_requests import stored_request

GPU = {
    "uuid": "GPU-1",
    "name": "A GPU",
    "index": 0,
    "utilization_ratio": 0.5,
    "sm_active_ratio": 0.4,
    "power_watts": 300.5,
    "memory_used_bytes": 10,
    "memory_total_bytes": 20,
    "temperature_celsius": 60,
    "energy_joules_total": 1000,
    "clock_sm_hertz": 1.5e9,
    "clock_memory_hertz": 2.6e9,
    "pcie_receive_bytes_per_second": 1e6,
    "pcie_transmit_bytes_per_second": 2e6,
    "throttle_reasons": ["sw_power_cap", "a_new_one"],
}
NODE = {
    "device": "gpu",
    "state": "busy",
    "lanes": 2,
    "busy_lanes": 1,
    "job": "",
    "host": "h",
    "network": "7",
    "pid": 1,
    "cpu_ratio": 0.25,
    "cpus": 4,
    "load1": 2,
    "round_trip_seconds": 0.002,
    "disks": json.dumps([{"disk": "8:1", "places": ["data"], "free_bytes": 3, "total_bytes": 9}]),
    "memory_used_bytes": 1,
    "memory_total_bytes": 8,
    "network_receive_bytes_total": 5,
    "network_transmit_bytes_total": 6,
    "rates": json.dumps({"collatz": 1e6}),
}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Shown:
    """A coordinator's exporter with a Redis, and its output."""

    def __init__(self, url: str, timeout: float = 60) -> None:
        self.store = Store(connection.connect(url, retries=0, timeout=timeout))
        self.queries = Queries(self.store, Settings(cluster_size=3, redis_url=url))
        self.exporter = Exporter(self.queries, lambda: True)
        self.exporter.registry.register(Census(self.store))

    def beat(self, worker: str, **facts: object) -> None:
        given: Mapping[str, object] = {**NODE, "clock": time.time(), **facts}
        self.store.fleet.heartbeat(worker, "0000000000001-a", {name: str(value) for name, value in given.items()})

    def scale(self) -> None:
        Scaler(self.store, Settings(autoscale_min=2)).update(())

    def ask(self) -> None:
        exchange = Exchange(tenant="default", model="chat", began=0.0, status=200, first_seconds=0.1, prompt_tokens=7)
        RequestCounter(self.store.services, self.exporter).export(exchange)

    def serve(self, name: str = "chat", **more: Any) -> str:
        fields = {
            "service_id": f"id-{name}",
            "tenant": "default",
            "engine": "http",
            "asked": json.dumps(stored_request()),
            **more,
        }
        assert self.store.services.add(Service(name=name, **fields))[0] == "new"
        return str(fields["service_id"])

    def text(self) -> str:
        return generate_latest(self.exporter.registry).decode()

    def samples(self) -> Samples:
        families = text_string_to_metric_families(self.text())
        return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    def value(self, metric: metrics.Metric, suffix: str = "", **labels: str) -> float | None:
        return self.samples().get((metric.name + suffix, frozenset(labels.items())))

    def throttled(self, **labels: str) -> dict[str, float | None]:
        """Return the current throttle reasons of a GPU. Workers that are silent for seconds are not reported."""
        samples = self.samples()
        name, fixed = metrics.GPU_THROTTLED.name, set(labels.items())
        return {
            reason: samples.get((name, frozenset(fixed | {("reason", reason)}))) for reason in metrics.THROTTLE_REASONS
        }


@pytest.fixture
def shown(any_redis_url: str) -> Shown:
    return Shown(any_redis_url)


def test_promtool_finds_nothing_wrong_with_a_coordinators_metrics(shown: Shown) -> None:
    shown.beat("w", gpus=json.dumps([GPU]))
    shown.exporter.requests.labels("GET", "/ready", "200").inc()
    shown.exporter.seconds.labels("GET", "/ready").observe(0.1)
    shown.ask()
    done = promtool("check", "metrics", text=shown.text())
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_promtool_finds_nothing_wrong_with_a_workers_metrics() -> None:
    text = generate_latest(exporter.registry()).decode()
    assert metrics.WORKER_MEMORY.name in text
    done = promtool("check", "metrics", text=text)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_coordinator_shows_every_metric_with_its_type_help_and_labels(shown: Shown) -> None:
    shown.beat("w", gpus=json.dumps([GPU]))
    shown.scale()
    shown.exporter.requests.labels("GET", "/ready", "200").inc()
    shown.exporter.seconds.labels("GET", "/ready").observe(0.1)
    shown.ask()
    shown.serve()
    text, samples = shown.text(), shown.samples()
    for metric in metrics.ALL:
        if metric.shown_by != "coordinator":
            continue
        assert f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.type}\n" in text
        part = "_count" if metric.type == "histogram" else ""
        labels = {frozenset(name for name, _ in found) for name, found in samples if name == metric.name + part}
        assert labels == {frozenset(metric.labels)}, metric.name


def test_openmetrics_has_each_name_once(shown: Shown) -> None:
    """OpenMetrics names a counter's family without _total, so a gauge with that name would be a duplicate."""
    families = re.findall(r"^# TYPE (\S+)", generate_openmetrics(shown.exporter.registry).decode(), re.MULTILINE)
    assert len(families) == len(set(families)) > len(metrics.ALL)


def test_no_label_grows_without_bound() -> None:
    labels = {label for metric in metrics.ALL for label in metric.labels}
    assert labels == {
        "kind",
        "outcome",
        "state",
        "queue",
        "device",
        "worker",
        "host",
        "network",
        "gpu",
        "index",
        "name",
        "reason",
        "version",
        "method",
        "route",
        "status",
        "what",
        "tenant",
        "model",
        "disk",
        "service",
    }


def test_counters_begin_at_zero(shown: Shown) -> None:
    for kind in registry.names():
        for outcome in ("done", "failed", "cancelled"):
            assert shown.value(metrics.JOBS, kind=kind, outcome=outcome) == 0
        assert shown.value(metrics.UNITS, kind=kind, device=registry.devices(kind)[0]) == 0
        assert shown.value(metrics.DURATION, "_count", kind=kind) == 0
    assert shown.value(metrics.TENANT_JOBS, tenant="default") == 0
    assert shown.value(metrics.TENANT_LANES, tenant="default", device="cpu") == 0
    for outcome in metrics.LEASE_OUTCOMES:
        assert shown.value(metrics.LEASES, outcome=outcome) == 0
    for queue in queues.ALL:
        assert shown.value(metrics.WAIT, "_bucket", queue=queue, le="+Inf") == 0
    assert shown.value(metrics.WORKERS, device="cpu", state="idle") == 0


def test_services_are_shown_by_state_and_a_hundred_are_named(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    place = shown.serve(replicas=2)
    assert shown.store.services.place(place, 1, 1)
    shown.serve("idle", replicas=3)
    assert shown.store.services.stop("default", "idle")
    for state, count in (("waiting", 1), ("ready", 0), ("dead", 0)):
        assert shown.value(metrics.SERVICE_REPLICAS, tenant="default", service="chat", state=state) == count
    assert shown.value(metrics.SERVICE_DESIRED, tenant="default", service="chat") == 2
    assert shown.value(metrics.SERVICE_DESIRED, tenant="default", service="idle") == 0
    monkeypatch.setattr(metrics, "MAX_TENANTS", 1)
    assert shown.value(metrics.SERVICE_DESIRED, tenant="default", service="idle") is None
    assert shown.value(metrics.SERVICE_DESIRED, tenant="other", service="other") == 0


def test_a_hundred_tenants_are_named(shown: Shown) -> None:
    client = shown.store.client
    for number in range(103):
        client.sadd(keys.USAGES, f"t{number:03}")
        client.hset(keys.usage(f"t{number:03}"), mapping={"19675|ms|cpu": 1500, "before|jobs|collatz": 2})
    assert shown.value(metrics.TENANT_LANES, tenant="t099", device="cpu") == 1.5
    assert shown.value(metrics.TENANT_JOBS, tenant="t100") is None
    assert shown.value(metrics.TENANT_JOBS, tenant="other") == 6
    assert shown.value(metrics.TENANT_LANES, tenant="other", device="cpu") == 4.5


def test_the_scripts_count_the_outcomes_that_are_declared() -> None:
    functions = "".join(path.read_text() for path in (ROOT / "jobs" / "store" / "lua").glob("*.lua"))
    assert set(re.findall(r"'outcomes', '(\w+)'", functions)) == set(metrics.LEASE_OUTCOMES)


def test_what_redis_counted_is_shown(shown: Shown) -> None:
    redis = shown.store.client
    redis.hset(f"{keys.PREFIX}ended", "collatz|done", 7)
    redis.hset(f"{keys.PREFIX}units", "collatz|gpu", 9)
    redis.hset(
        f"{keys.PREFIX}waits",
        mapping={"any.high|0.5": 2, "any.high|60": 1, "any.high|sum": 3500, "any.high|count": 3},
    )
    assert shown.value(metrics.JOBS, kind="collatz", outcome="done") == 7
    assert shown.value(metrics.UNITS, kind="collatz", device="gpu") == 9
    buckets = {
        le: shown.value(metrics.WAIT, "_bucket", queue="any.high", le=le) for le in ("0.1", "0.5", "60.0", "+Inf")
    }
    assert buckets == {"0.1": 0, "0.5": 2, "60.0": 3, "+Inf": 3}
    assert shown.value(metrics.WAIT, "_sum", queue="any.high") == 3.5


def test_workers_and_their_hosts_are_shown(shown: Shown) -> None:
    shown.beat("a", device="cpu")
    shown.beat("b", device="cpu", state="idle", busy_lanes=0)
    assert shown.value(metrics.WORKERS, device="cpu", state="busy") == 1
    assert shown.value(metrics.WORKERS, device="cpu", state="idle") == 1
    assert shown.value(metrics.LANES, device="cpu", state="idle") == 3
    assert shown.value(metrics.WORKER_RATE, kind="collatz", device="cpu") == 1e6
    assert shown.value(metrics.WORKER_INFO, worker="a", device="cpu", host="h", network="7") == 1
    assert shown.value(metrics.HOST_MEMORY_TOTAL, host="h") == 8
    assert shown.value(metrics.HOST_CPUS, host="h") == 4
    assert shown.value(metrics.HOST_SENT, host="h", network="7") == 6
    assert shown.value(metrics.CONFIGURED, device="any") == 3
    assert shown.value(metrics.DESIRED, device="cpu") is None, "nobody counts"
    shown.scale()
    assert shown.value(metrics.DESIRED, device="cpu") == 2


def test_a_host_is_shown_once_and_each_of_its_networks(shown: Shown) -> None:
    shown.beat("a", network_receive_bytes_total=50, cpu_ratio=0.5)
    shown.beat("b", network_receive_bytes_total=51, cpu_ratio=0.75)
    shown.beat("c", network="8", network_receive_bytes_total=9)
    shown.beat("d", host="other")
    time.sleep(0.15)
    shown.beat("b", network_receive_bytes_total=52, cpu_ratio=0.625)
    found = {labels: value for (name, labels), value in shown.samples().items() if name == metrics.HOST_CPU.name}
    assert found == {frozenset({("host", "h")}): 0.625, frozenset({("host", "other")}): 0.25}
    assert shown.value(metrics.HOST_RECEIVED, host="h", network="7") == 52
    assert shown.value(metrics.HOST_RECEIVED, host="h", network="8") == 9


def test_gpus_are_shown_and_passed_on(shown: Shown) -> None:
    shown.beat("w", gpus=json.dumps([GPU]))
    for figure in measurements.GPU:
        assert shown.value(figure.metric, worker="w", gpu="GPU-1") == GPU[figure.field]
    assert shown.value(metrics.GPU_INFO, worker="w", gpu="GPU-1", index="0", name="A GPU") == 1
    shown.beat("w", gpus=json.dumps([GPU]))
    reasons = shown.throttled(worker="w", gpu="GPU-1")
    assert reasons == dict.fromkeys(metrics.THROTTLE_REASONS, 0) | {"sw_power_cap": 1, "other": 1}
    [node] = shown.queries.fleet.workers()
    assert node["gpus"] == [GPU]


def test_what_a_gpu_does_not_tell_is_absent(shown: Shown) -> None:
    shown.beat("w", gpus=json.dumps([{"uuid": "GPU-1", "power_watts": None, "temperature_celsius": 50}]))
    shown.beat("c", device="cpu")
    told = {name for name, labels in shown.samples() if ("gpu", "GPU-1") in labels}
    assert told == {metrics.GPU_INFO.name, metrics.GPU_TEMPERATURE.name, metrics.GPU_CORDONED.name}
    assert [node["id"] for node in shown.queries.fleet.workers() if "gpus" in node] == ["w"]


def test_a_gpu_that_gets_no_work_is_shown(shown: Shown) -> None:
    for why, value in (("", 0), ("Xid 79: it has fallen off the bus", 1)):
        shown.beat("w", gpus=json.dumps([GPU]), cordoned=why)
        assert shown.value(metrics.GPU_CORDONED, worker="w", gpu="GPU-1") == value
    shown.beat("r", gpus=json.dumps([{**GPU, "uuid": "GPU-2"}]), device="runner", cordoned="drained")
    assert shown.value(metrics.GPU_CORDONED, worker="r", gpu="GPU-2") is None


def test_profiles_that_live_are_shown_with_what_they_have_recorded(shown: Shown) -> None:
    figures = (metrics.PROFILE_SAMPLES, metrics.PROFILE_MISSED, metrics.PROFILE_BYTES)
    assert [shown.value(metric) for metric in figures] == [0, 0, 0]
    profiles = shown.store.profiles
    for name in ("a", "b"):
        assert profiles.start(profile(name), 600)[0] == "new"
        rows = [recording(f"w-1.{number}") for number in (1, 2)]
        profiles.report(f"id-{name}", "w-1", (), rows)
    shown.store.client.hset(
        keys.profile_recordings("id-a"), "w-1.9", '{"samples": "many", "missed": -4, "bytes": null}'
    )
    assert profiles.stop("id-b")
    assert [shown.value(metrics.PROFILES, state=state) for state in metrics.PROFILE_STATES] == [1, 1]
    assert [shown.value(metric) for metric in figures] == [400, 12, 4096]


def profile(name: str) -> Profile:
    return Profile(
        profile_id=f"id-{name}",
        tenant="default",
        name=name,
        actor=ANONYMOUS,
        state="",
        hz=10,
        hosts=(),
        job="",
        created=0,
        until=0,
        ended=0,
        collecting=0,
        artifact="",
        trouble="",
    )


def recording(name: str) -> Recording:
    return Recording(name=name, host="h", devices=("host:h",), samples=100, missed=3, bytes=1024)


def test_a_redis_that_hangs_does_not_hang_a_scrape() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        shown = Shown(f"redis://127.0.0.1:{deaf.getsockname()[1]}/0", timeout=1)
        began = time.monotonic()
        assert shown.value(metrics.REDIS_UP) == 0
        assert time.monotonic() - began < 45


def test_without_redis_a_replica_still_tells_of_itself() -> None:
    shown = Shown("redis://127.0.0.1:1/0")
    assert shown.value(metrics.REDIS_UP) == 0
    assert shown.value(metrics.LEADER) == 1
    assert shown.value(metrics.BUILD, version=VERSION) == 1
    cluster_wide = {metric.name for metric in metrics.ALL if not metric.per_replica}
    assert not {name for name, _ in shown.samples()} & cluster_wide


def test_workflows_schedules_and_dead_webhooks_are_shown(shown: Shown) -> None:
    for metric in (metrics.WORKFLOW_IDLE, metrics.WORKFLOWS_AGE, metrics.SCHEDULES_LATE, metrics.WEBHOOKS_DEAD):
        assert shown.value(metric) == 0
    assert shown.value(metrics.WORKFLOWS, state="running") == 0
    now = shown.store.workflows.now_ms()
    shown.store.workflows.publish({"running": 3, "done": 7, "idle": now - 60_000, "at": now - 5000})
    shown.store.client.zadd(keys.SCHEDULES, {"a": now - 90_000, "b": now - 1000, "c": now + 1000})
    shown.store.client.zadd(keys.deliveries_of("default", "dead"), {"msg_1": 1, "msg_2": 2})
    assert shown.value(metrics.WORKFLOWS, state="running") == 3 and shown.value(metrics.WORKFLOWS, state="done") == 7
    for metric, seconds in (
        (metrics.WORKFLOW_IDLE, 60),
        (metrics.WORKFLOWS_AGE, 5),
        (metrics.SCHEDULES_LATE, 90),
    ):
        assert seconds <= (shown.value(metric) or 0) < seconds + 60
    assert shown.value(metrics.WEBHOOKS_DEAD) == 2


def test_every_state_of_a_workflow_is_shown() -> None:
    assert {state.value for state in State} == set(metrics.WORKFLOW_STATES)
