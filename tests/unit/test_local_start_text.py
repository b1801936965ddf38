"""Tests what the local cluster prints when it is up: first commands, a login link, its ports, and how to stop it."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.local import cluster as local_cluster
from deploy.local import cluster_programs, commands, port_list, samples, shape
from deploy.local.joining import https_coordinator
from deploy.local.processes import Run
from deploy.local.shape import Shape
from jobs.settings import Settings
from threads_cluster.client.checkouts import Checkout


class Api:
    """API of a cluster whose CPU worker compiles these kinds."""

    url, token = "http://127.0.0.1:3000", ""

    def __init__(self, compiling: list[str]) -> None:
        self.compiling = compiling

    def get(self, path: str) -> Any:
        return {"workers": [{"id": "cpu-1", "compiling": self.compiling}, {"id": "runner-1"}]}

    def post(self, path: str) -> Any:
        assert path == "/api/login-codes"
        return {"path": "/#login=ABC"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(port_list, "FILE", tmp_path / "ports")
    monkeypatch.setattr(https_coordinator, "FILE", tmp_path / "door.json")
    return tmp_path


def text(monkeypatch: pytest.MonkeyPatch, *, runner: bool, compiling: list[str]) -> list[str]:
    parts = Shape(
        redis_server="", redis_port=41000, port=3000, metrics_port=9090, lanes=(2,), runner=runner, pages="web/dist"
    )
    made = local_cluster.LocalCluster(Settings(grpc_port=50051), parts)
    monkeypatch.setattr(made, "api", Api(compiling))
    port_list.write(made.list_ports())
    return made.describe_start()


def test_the_first_lines_are_three_ways_to_begin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    https_coordinator.store_endpoint(3443, ["desk"])
    lines = text(monkeypatch, runner=True, compiling=["thread", "collatz"])
    assert len(lines) <= 13, "with the lines before it, the text has at most 15 lines"
    program, kind, model, pages, kernels, ports, last = lines[-7:]
    assert re.match(r"  run a program: +\.venv/bin/cluster run --no-files -- echo hello$", program)
    assert re.match(r"  submit a kind: +\.venv/bin/cluster submit collatz ", kind)
    assert " model download qwen --source hf://" in model and model.endswith("&& .venv/bin/cluster serve qwen --wait")
    assert pages.startswith("Pages: http://127.0.0.1:3000/#login=ABC ")
    assert kernels == "Workers are compiling the kernels of collatz and thread; jobs that use them start after that."
    assert ports == ("Ports: API and pages 3000, Redis 41000, metrics 9090, gRPC 50051, HTTPS for joined machines 3443")
    assert "Stop: Ctrl-C here, or ./deploy-cluster.sh stop" in last
    assert Checkout(folder).ports() == ports.removeprefix("Ports: ")


def test_without_a_runner_no_program_is_offered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = text(monkeypatch, runner=False, compiling=[])
    assert not any("run a program" in line or "serve a model" in line or "compiling" in line for line in lines)
    assert any("submit a kind" in line for line in lines) and "Pages: http://127.0.0.1:3000/" in lines


def test_tracing_sends_spans_to_the_collector_that_is_set_or_to_one_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Shape(redis_server="", redis_port=41000, port=3000, metrics_port=9090, lanes=(2,))
    monkeypatch.setattr(shape, "plan", lambda *_, **__: parts)
    options = commands.ClusterOptions(port=None, workers=1, runner=False, once=False, samples=False)

    def endpoint(tracing: bool, **settings: str) -> str | None:
        planned = commands.plan_cluster(Settings.model_validate(settings), replace(options, tracing=tracing))
        [coordinator] = [
            program
            for program in cluster_programs.programs(planned, Run(Path("/run"), "run"), defaultdict(str))
            if program.name == "coordinator"
        ]
        return coordinator.environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")

    assert endpoint(tracing=False) is None
    assert endpoint(tracing=True) == "http://127.0.0.1:4318"
    assert endpoint(tracing=True, otel_exporter_otlp_endpoint="http://collector:4318") == "http://collector:4318"


def test_a_port_that_opens_later_is_added(folder: Path) -> None:
    port_list.write({"API and pages": 3000, "gRPC": 0})
    assert port_list.describe() == "API and pages 3000"
    https_coordinator.store_endpoint(3444, ["desk"])
    assert port_list.describe() == "API and pages 3000, HTTPS for joined machines 3444"


@pytest.mark.parametrize(
    ("platform", "has_children", "why"),
    [("linux", True, ""), ("darwin", True, "runners need Linux"), ("linux", False, "runners need /proc/PID/task/PID")],
)
def test_a_machine_that_cannot_run_programs_has_no_runner(
    platform: str, has_children: bool, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr("runner.programs.processes.can_list_children", lambda: has_children)
    planned: list[bool] = []
    monkeypatch.setattr(shape, "plan", lambda settings, port, workers, *, runner: planned.append(runner))
    options = commands.ClusterOptions(port=None, workers=1, runner=True, once=False, samples=True)
    commands.plan_cluster(Settings(), options)
    commands.plan_cluster(Settings(), commands.ClusterOptions(**{**vars(options), "runner": False}))
    commands.plan_cluster(Settings(), commands.ClusterOptions(**{**vars(options), "once": True}))
    assert planned == [not why, False, False]
    said = capsys.readouterr().err
    assert said.count("The cluster starts without a runner of programs: ") == bool(why) and why in said


@pytest.mark.parametrize(("has_data", "once", "submitted"), [(False, False, 1), (True, False, 0), (False, True, 0)])
def test_only_the_first_start_submits_the_samples(
    has_data: bool, once: bool, submitted: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[str] = []

    def submit(*_: object, **__: object) -> bool:
        calls.append("waited")
        return True

    class Stopped(Exception):
        pass

    class Cluster:
        def __init__(self, *_: object) -> None:
            self.run, self.shape, self.api = None, None, Api([])

        def __enter__(self) -> Cluster:
            return self

        def __exit__(self, *_: object) -> None: ...

        def wait_ready(self) -> None: ...

        def stay(self) -> None:
            raise Stopped

    for name in ("raise_on_stop_signals", "check_exposure", "plan_cluster", "_announce"):
        monkeypatch.setattr(commands, name, lambda *_: None)
    monkeypatch.setattr(commands, "LOCAL_FOLDER", tmp_path)
    monkeypatch.setattr(commands, "LocalCluster", Cluster)
    monkeypatch.setattr(samples, "submit", submit)
    monkeypatch.setattr(samples, "submit_in_background", lambda *_: calls.append("submitted"))
    if has_data:
        (tmp_path / "redis/appendonlydir").mkdir(parents=True)
    options = commands.ClusterOptions(port=None, workers=1, runner=True, once=once, samples=True)
    if once:
        assert commands.run(options) == 0
    else:
        with pytest.raises(Stopped):
            commands.run(options)
    assert calls.count("submitted") == submitted and calls.count("waited") == (2 if once else 0)
