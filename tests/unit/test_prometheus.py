"""Tests Prometheus' configuration and rules, and that every rule is tested and documented."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from coordinator import domains
from coordinator.app import RequestMetrics
from coordinator.telemetry import alerts as own_alerts
from coordinator.telemetry.exporter import Exporter
from jobs.settings import Settings
from prometheus import thresholds
from tests.dashboard_queries import metric_names
from tests.unit.monitoring import (
    EXPORTERS,
    ROOT,
    RULES,
    added_over_replicas,
    known,
    metric_names_of_the_cluster,
    promtool,
    rules,
)

FOLDER = ROOT / "prometheus"
TESTS = sorted((FOLDER / "tests").glob("*.yml"))
RUNBOOK = "docs/operations.md"

ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
RECORDS = [rule["record"] for rule in rules() if "record" in rule]


def test_the_configuration_is_valid_though_no_name_resolves() -> None:
    done = promtool("check", "config", FOLDER / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_valid() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_rules_do_what_their_tests_say(path: Any) -> None:
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


@cache
def cases() -> dict[str, set[bool]]:
    """Return for each rule whether a test covers a nonzero value (True), and zero, empty or silent (False)."""
    found: dict[str, set[bool]] = defaultdict(set)
    for path in TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for case in test.get("alert_rule_test", ()):
                found[case["alertname"]].add(bool(case.get("exp_alerts")))
            for case in test.get("promql_expr_test", ()):
                [name] = metric_names(case["expr"])
                found[name].add(any(sample["value"] for sample in case.get("exp_samples", ())))
    return found


def test_every_rule_is_seen_both_ways() -> None:
    varying = [name for name in RECORDS if not name.startswith("alert:")]  # Thresholds are never zero.
    lacking = {name: seen for name in [*ALERTS, *varying] if len(seen := cases().get(name, set())) < 2}
    assert not lacking, f"add the missing case to prometheus/tests: {lacking}"
    assert set(cases()) == {*ALERTS, *varying}


def test_every_metric_that_a_rule_reads_exists() -> None:
    for rule in rules():
        unknown = metric_names(rule["expr"]) - known()
        assert not unknown, f"{rule.get('alert') or rule['record']} reads {unknown}, which nothing shows"


def test_the_pages_server_shows_what_is_read_of_it() -> None:
    shown = (ROOT / "web" / "nginx.conf").read_text()
    assert [name for name in EXPORTERS["web"].split() if f"# TYPE {name} gauge\n" not in shown] == []


def test_no_rule_adds_up_what_every_coordinator_shows_alike() -> None:
    for rule in rules():
        assert not added_over_replicas(rule["expr"]), f"take max over replicas in {rule}"


@pytest.mark.parametrize(
    ("expr", "wrong"),
    [
        ("sum(cluster_workers)", {"cluster_workers"}),
        ("sum by (queue) (cluster_queue_jobs)", {"cluster_queue_jobs"}),
        ("sum by (kind) (rate(cluster_jobs_total[5m]))", {"cluster_jobs_total"}),
        ("sum by (le) (rate(cluster_queue_wait_seconds_bucket[5m]))", {"cluster_queue_wait_seconds_bucket"}),
        ("max(sum by (instance) (cluster_workers))", set()),
        ("sum by (le) (max by (queue, le) (rate(cluster_queue_wait_seconds_bucket[5m])))", set()),
        ("sum(cluster_leader) + sum(rate(cluster_http_requests_total[5m])) + sum(redis_db_keys)", set()),
    ],
)
def test_adding_up_replicas_is_noticed(expr: str, wrong: set[str]) -> None:
    assert added_over_replicas(expr) == wrong


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ('max by (kind, le) (rate(a_total{kind=~"b_total|{c}"}[5m])) > 1e6', {"a_total"}),
        (
            'level:a:sum{x="y"} / on (z) group_left (q) count_b unless c offset 5m or vector(0)',
            {"level:a:sum", "count_b", "c"},
        ),
    ],
)
def test_names_are_found_in_expressions(expr: str, names: set[str]) -> None:
    assert metric_names(expr) == names


def test_records_are_named_by_level_metric_and_operation() -> None:
    assert len(RECORDS) == len(set(RECORDS))
    others = [name for name in RECORDS if not re.fullmatch(r"[a-z_]+:[a-z_]+:[a-z0-9_]+", name)]
    assert not others


def test_thresholds_stand_in_their_settings_alone() -> None:
    assert thresholds.FILE.read_text() == thresholds.render(Settings()), "run .venv/bin/python -m prometheus.thresholds"
    assert [name for name in RECORDS if name.startswith("alert:")] == [
        f"alert:{name}:threshold" for name in thresholds.threshold_names()
    ]
    own = {"interactive_wait_seconds", "worker_lost_seconds", "heartbeat_seconds"}  # only for the cluster's own alerts
    read = {name for rule in ALERTS.values() for name in metric_names(rule["expr"]) if name.startswith("alert:")}
    assert read == {f"alert:{name}:threshold" for name in set(thresholds.threshold_names()) - own}
    bare = [name for name, rule in ALERTS.items() if re.search(r"> (0?\.\d+|[1-9]\d+)", rule["expr"])]
    assert bare == [], "make its threshold a setting"


def test_the_alerts_of_every_cluster_read_only_what_a_coordinator_exports() -> None:
    """A local cluster has no exporters, so an alert about them would be silent, or would fire if a metric is absent."""
    own = {"up", "process_start_time_seconds", *RECORDS, *metric_names_of_the_cluster()}
    groups = yaml.safe_load((FOLDER / "rules/alerts.yml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        assert metric_names(rule["expr"]) <= own, rule["alert"]
        assert "absent(" not in rule["expr"], rule["alert"]
        assert "docker" not in str(rule["annotations"]), rule["alert"]


def start(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run start.sh with a fake Prometheus that prints its arguments and the URL of the cluster."""
    program = folder / "prometheus"
    program.write_text("#!/bin/sh\necho started with $* for $PUBLIC_URL\n")
    program.chmod(0o755)
    places = {"PROMETHEUS_FROM": str(FOLDER), "PROMETHEUS_TO": str(folder / "to")}
    environment = {"PATH": f"{folder}:/usr/bin:/bin", **places, **settings}
    return subprocess.run(["sh", FOLDER / "start.sh", "--x"], env=environment, capture_output=True, text=True)


def test_in_compose_the_thresholds_are_those_that_are_set(tmp_path: Path) -> None:
    written = tmp_path / "to" / "rules" / "thresholds.yml"
    arguments = "--enable-feature=expand-external-labels --x"
    assert start(tmp_path).stdout == f"started with {arguments} for http://127.0.0.1:8080\n"
    assert start(tmp_path, HTTP_PORT="80").stdout == f"started with {arguments} for http://127.0.0.1:80\n"
    assert start(tmp_path, PUBLIC_URL="https://a.example").stdout == f"started with {arguments} for https://a.example\n"
    assert written.read_text() == thresholds.FILE.read_text()
    given = {"alert_gpu_celsius": 80.5, "alert_queue_wait_seconds": 30}
    assert start(tmp_path, **{name.upper(): str(value) for name, value in given.items()}).returncode == 0
    assert written.read_text() == thresholds.render(Settings.model_validate(given))
    assert sorted(path.name for path in written.parent.iterdir()) == sorted(path.name for path in RULES)
    assert promtool("check", "config", tmp_path / "to" / "prometheus.yml").returncode == 0
    refused = start(tmp_path, ALERT_GPU_CELSIUS="80)} #")
    assert (refused.returncode, refused.stdout) == (2, "") and "ALERT_GPU_CELSIUS" in refused.stderr


def anchors(markdown: str) -> list[str]:
    """Return the anchors of the headings in GitHub's format."""
    headings = re.findall(r"^#+ (.+)$", markdown, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert["alert"])
def test_an_alert_says_how_bad_how_much_and_what_to_do(alert: dict[str, Any]) -> None:
    annotations = alert["annotations"]
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert alert["for"]
    assert "$value" in annotations["summary"]
    assert annotations["description"].endswith(".")
    page = f"/docs/{Path(RUNBOOK).stem}.html#{alert['alert'].lower()}"
    assert annotations["runbook_url"] == f"{{{{ $externalLabels.cluster }}}}{page}"


def sections(heading: str) -> dict[str, str]:
    """Return the texts of a chapter of the operations page, keyed by heading."""
    chapter = (ROOT / RUNBOOK).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    _, *parts = re.split(r"^### (.+)$", chapter, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize(
    ("heading", "alerts"),
    [("Alerts of Prometheus", list(ALERTS)), ("Alerts of the cluster itself", list(own_alerts.rules(Settings())))],
)
def test_every_alert_has_its_section_and_every_section_its_alert(heading: str, alerts: list[str]) -> None:
    assert sorted(sections(heading)) == sorted(alerts)
    for name, text in sections(heading).items():
        meaning, _, steps = text.partition("\nLook at")
        assert meaning.strip() and re.search(r"(^|\n|, and )[Dd]o: ", steps), (
            f"{name}: what to look at, and what to do?"
        )


def test_the_sections_of_operations_have_names_of_their_own() -> None:
    known = anchors((ROOT / RUNBOOK).read_text())
    assert len(known) == len(set(known))
    assert {name.lower() for name in ALERTS} <= set(known)


def test_targets_are_services_of_the_stack() -> None:
    jobs = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for job in jobs:
        for found in job.get("dns_sd_configs", ()):
            assert (found["names"], found["type"]) == ([job["job_name"]], "A")
    assert {job["job_name"] for job in jobs} <= set(services), "a target that no service answers"
    unscraped = set(services) - {job["job_name"] for job in jobs}
    assert services["cpu-worker-pool"]["networks"]["backend"]["aliases"] == ["cpu-worker"], "it is found as another"
    # Exporters report Redis and nginx. Metrics of the coordinators report the autoscaler and the runners, whose network
    # Prometheus does not reach.
    assert unscraped == {
        "redis",
        "nginx",
        "cpu-worker-pool",
        "autoscaler",
        "engine-proxy",
        "runner",
        "runner-token",
    }


def test_slowness_leaves_out_the_routes_that_may_wait_and_no_other() -> None:
    [rule] = [rule for rule in rules() if rule.get("record") == "cluster:cluster_http_request_duration_seconds:p95_5m"]
    [left_out] = re.findall(r'route!~"([^"]+)"', rule["expr"])
    every: list[Any] = [route for router in domains.routers() for route in router.routes]
    waits = {route.path for route in every if "wait_seconds" in inspect.getsource(route.endpoint)}
    assert len(waits) == 9
    # Submissions that wait have a query parameter and are not timed, as the next test shows.
    assert {route.path for route in every if re.fullmatch(left_out, route.path)} == waits - {"/api/submit"}


def test_a_wait_that_was_asked_for_is_not_timed() -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 202})

    async def nothing(*_: Any) -> None:
        return None

    exporter = Exporter(SimpleNamespace(settings=Settings(), worker_table=None), lambda: False)  # type: ignore[arg-type]
    for query in (b"", b"wait_seconds=5"):
        scope = {"type": "http", "method": "POST", "path": "/api/submit", "query_string": query}
        asyncio.run(RequestMetrics(answer, exporter, SimpleNamespace())(scope, nothing, nothing))  # type: ignore[arg-type]
    counted, timed = (
        sum(sample.value for metric in family.collect() for sample in metric.samples if sample.name.endswith(end))
        for family, end in ((exporter.requests, "_total"), (exporter.seconds, "_count"))
    )
    assert (counted, timed) == (2, 1)
