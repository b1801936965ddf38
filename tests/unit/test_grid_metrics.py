"""Tests counts and durations under grid-cli's names: in the API, on Prometheus' port and in the command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from coordinator.telemetry.exporter import Exporter
from jobs import metrics
from jobs.store import keys
from tests.unit.artifact_bench import Bench
from tests.unit.monitoring import promtool
from tests.unit.test_metrics import Shown
from threads_cluster.cli import main as cli
from threads_cluster.cli import session
from threads_cluster.cli.commands.metric_commands import exposition

COLLATZ = {"start_number": 1, "number_count": 1000}


@pytest.fixture
def bench(any_redis_url: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(any_redis_url, tmp_path / "store")
    yield made
    made.app.state.coordinator.cluster.store.client.close()
    made.close()


def values(bench: Bench) -> dict[str, float]:
    """Return every sample that Prometheus reads from the command's text."""
    return parse("\n".join(line for row in bench.client.metrics() for line in exposition(row)) + "\n")


def parse(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


def test_each_submission_counts_once_however_it_comes(bench: Bench, any_redis_url: str) -> None:
    shown = Shown(any_redis_url)
    assert shown.value(metrics.SUBMITTED, kind="collatz") == 0, "it begins at zero"
    job = bench.client.submit("collatz", COLLATZ, idempotency_key="k")["job_id"]
    assert bench.client.submit("collatz", COLLATZ, idempotency_key="k")["job_id"] == job
    bench.client.submit_batch([{"type": "collatz", "parameters": COLLATZ}, {"type": "thread"}, {"type": "nothing"}])
    bench.client.cancel(job)
    bench.client.retry(job)
    assert bench.ask("POST", "/api/submit", {"type": "collatz", "parameters": {}}).status_code == 422
    assert shown.value(metrics.SUBMITTED, kind="collatz") == 2
    assert shown.value(metrics.SUBMITTED, kind="thread") == 1
    found = values(bench)
    assert found["grid_tasks_submitted_total"] == 3
    assert found["grid_tasks_completed_total{status=failure}"] == 1, "it was cancelled"
    bench.client.cancel(job)
    bench.client.delete(job)
    assert values(bench)["grid_tasks_submitted_total"] == 3, "what is deleted was submitted"


def test_every_series_is_there_from_the_beginning(bench: Bench) -> None:
    found = values(bench)
    names = {re.sub("(_bucket|_sum|_count)?(\\{.*)?$", "", name) for name in found}
    assert names == {metric.name for metric in metrics.GRID} - {"grid_node_health_score"}, "no host is known yet"
    assert set(found.values()) == {0.0}


def test_durations_and_ends_are_those_of_all_kinds(bench: Bench) -> None:
    client = bench.store.client
    client.hset(keys.ENDED, mapping={"collatz|done": 5, "thread|done": 2, "thread|failed": 1, "thread|skipped": 1})
    client.hset(
        keys.DURATIONS, mapping={"collatz|0.5": 3, "collatz|86400": 1, "collatz|sum": 90_000_000, "collatz|inf": 1}
    )
    client.hset(keys.DURATIONS, mapping={"thread|0.5": 1, "thread|sum": 250})
    found = values(bench)
    assert found["grid_tasks_completed_total{status=success}"] == 7
    assert found["grid_tasks_completed_total{status=failure}"] == 2
    within = [found[f"grid_task_duration_seconds_bucket{{le={float(bound)}}}"] for bound in metrics.SECONDS]
    assert within == [0, 0, *[4] * 8, 5]
    assert found["grid_task_duration_seconds_bucket{le=+Inf}"] == found["grid_task_duration_seconds_count"] == 6
    assert found["grid_task_duration_seconds_sum"] == 90_000.25


def test_only_the_leader_exports_them_to_prometheus(bench: Bench, any_redis_url: str) -> None:
    shown = Shown(any_redis_url)
    shown.beat("w", device="cpu", host="amber")
    bench.store.client.hset(keys.DURATIONS, mapping={"collatz|0.5": 3, "collatz|sum": 250})
    bench.client.submit("collatz", COLLATZ)
    exported = {name: value for name, value in parse(shown.text()).items() if name.startswith("grid_")}
    assert exported == values(bench) and exported["grid_tasks_submitted_total"] == 1
    follower = Exporter(shown.queries, lambda: False)
    assert "grid_" not in generate_latest(follower.registry).decode()


def test_hosts_have_scores_and_running_jobs_are_counted(bench: Bench, any_redis_url: str) -> None:
    shown = Shown(any_redis_url)
    shown.beat("w", device="cpu", host="amber")
    job = bench.client.submit("collatz", COLLATZ)["job_id"]
    bench.store.client.zrem(keys.in_state("queued"), job)
    bench.store.client.zadd(keys.in_state("running"), {job: 1})
    found = values(bench)
    assert found["grid_node_health_score{host=amber}"] == shown.value(metrics.HOST_SCORE, host="amber") == 50
    assert found["grid_active_tasks"] == 1


def test_what_redis_holds_of_nonsense_hides_no_other_figure(bench: Bench) -> None:
    bench.store.client.hset(keys.SUBMITTED, mapping={"collatz": b"\xff", "thread": 4})
    assert values(bench)["grid_tasks_submitted_total"] == 4


Out = tuple[int, str]


def run(bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> Out:
    monkeypatch.setattr(session.Session, "cluster", bench.client)
    with pytest.raises(SystemExit) as ended:
        cli.main(["metrics", *words])
    out = "".join(line for line in capsys.readouterr().out.splitlines(keepends=True) if "[info " not in line)
    return int(ended.value.code or 0), out


def test_the_option_config_runs_the_command_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def execute(program: str, arguments: list[str], _: dict[str, str]) -> None:
        calls.append([Path(program).name, *arguments[1:]])
        raise SystemExit(0)

    monkeypatch.setattr("os.execve", execute)
    with pytest.raises(SystemExit):
        cli.main(["metrics", "--config"])
    assert calls == [["deploy-cluster.sh", "metrics", "--config"]]


def test_the_command_prints_what_prometheus_reads(
    bench: Bench, any_redis_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Shown(any_redis_url).beat("w", device="cpu", host="amber")
    code, out = run(bench, capsys, monkeypatch)
    assert code == 0 and "# TYPE grid_task_duration_seconds histogram\n" in out
    checked = promtool("check", "metrics", text=out)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    code, out = run(bench, capsys, monkeypatch, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["name"] for row in rows] == [metric.name for metric in metrics.GRID]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\x1b[31mb"])
def test_a_name_of_a_host_stays_within_its_quotes(name: str) -> None:
    row: Any = {
        "name": "m",
        "type": "gauge",
        "help": "h",
        "samples": [{"name": "m", "labels": {"host": name}, "value": 1}],
    }
    _, _, line = exposition(row)
    assert "\n" not in line and "\x1b" not in line
    [family] = text_string_to_metric_families(line + "\n")
    assert family.samples[0].value == 1
