"""Tests the command scale: which workers stop and start, and what it prints."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest

from deploy.local import commands, cpu_workers, processes, program_control, running_cluster, scaling, shape
from deploy.local.outcome import CommandError
from deploy.local.program_control import ProgramState


class Supervisord:
    """Programs of a cluster with these CPU workers, a runner, and room for more workers."""

    def __init__(self, running: int) -> None:
        workers = {f"cpu-worker-{number}" for number in range(1, running + 1)}
        self.running = {"coordinator", "redis", "runner-1", *workers}
        self.calls: list[tuple[str, list[str]]] = []

    def list_programs(self) -> dict[str, ProgramState]:
        names = {*self.running, *(f"cpu-worker-{number}" for number in range(1, 65))}
        return {
            name: ProgramState(
                name=name, group="all", state="RUNNING" if name in self.running else "STOPPED", pid=1, description=""
            )
            for name in names
        }

    def stop(self, names: Container[str]) -> None:
        self._note("stop", stopped := {name for name in self.running if name in names})
        self.running -= stopped

    def start(self, names: Container[str]) -> None:
        self._note("start", added := {name for name in self.list_programs() if name in names} - self.running)
        self.running |= added

    def _note(self, verb: str, names: set[str]) -> None:
        self.calls += [(verb, sorted(names))] if names else []


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes a running cluster, with the cores of the machine and the user's WORKER_THREADS."""
    monkeypatch.setattr(cpu_workers, "LANES", tmp_path / "lanes")
    monkeypatch.setattr(cpu_workers, "SIZE", tmp_path / "cluster_size")
    monkeypatch.setattr(running_cluster, "LOCAL_FOLDER", tmp_path)
    monkeypatch.setattr(running_cluster, "find_api", lambda: None)
    monkeypatch.setattr(running_cluster, "wait_ready", lambda api: None)

    def make(lanes: tuple[int, ...], cores: int = 4, threads: str = "") -> Supervisord:
        fake = Supervisord(len(lanes))
        for name in ("list_programs", "stop", "start"):
            monkeypatch.setattr(program_control, name, getattr(fake, name))
        monkeypatch.setattr(scaling, "usable_cores", lambda: cores)
        monkeypatch.setattr(commands, "describe_starter", lambda: ([], {"WORKER_THREADS": threads}))
        cpu_workers.write_lanes(lanes, 1)
        return fake

    return make


def test_workers_share_the_cores_as_after_a_start(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fake = cluster((4,))
    assert scaling.scale(3) == 0
    assert fake.calls == [("stop", ["cpu-worker-1"]), ("start", ["cpu-worker-1", "cpu-worker-2", "cpu-worker-3"])]
    assert cpu_workers.read_lanes() == shape.split(4, 3) == (2, 1, 1)
    assert cpu_workers.SIZE.read_text() == "4\n", "with the runner"
    said = capsys.readouterr().err
    assert "The cluster now has 3 CPU workers with 2+1+1 lanes, instead of 1." in said
    assert "./deploy-cluster.sh local --workers 3" in said


def test_workers_that_keep_their_lanes_continue(cluster: Any) -> None:
    fake = cluster((2, 1, 1))
    scaling.scale(2)
    assert fake.calls == [("stop", ["cpu-worker-2", "cpu-worker-3"]), ("start", ["cpu-worker-2"])]
    fake = cluster((8, 8), threads="8")
    scaling.scale(3)
    assert fake.calls == [("start", ["cpu-worker-3"])]
    assert cpu_workers.read_lanes() == (8, 8, 8)


def test_the_same_number_changes_nothing_but_starts_what_is_missing(
    cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = cluster((2, 2))
    fake.running.discard("cpu-worker-2")
    scaling.scale(2)
    assert fake.calls == [("start", ["cpu-worker-2"])]
    assert capsys.readouterr().err == "The cluster already has 2 CPU workers with 2+2 lanes.\n"


def test_workers_that_do_not_stop_are_not_left_stopped(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = cluster((4,))

    def refuse(names: Container[str]) -> None:
        fake.running.discard("cpu-worker-1")
        raise CommandError(1, "cpu-worker-1 did not stop")

    monkeypatch.setattr(program_control, "stop", refuse)
    with pytest.raises(CommandError, match="did not stop"):
        scaling.scale(2)
    assert cpu_workers.read_lanes() == (4,) and "cpu-worker-1" in fake.running


def test_one_command_at_a_time_changes_the_cluster(cluster: Any, tmp_path: Path) -> None:
    cluster((4,))
    assert processes.lock(tmp_path, name="change.lock") is not None
    with pytest.raises(CommandError, match=r"another \./deploy-cluster\.sh is changing this cluster") as refused:
        scaling.scale(2)
    assert refused.value.code == 5


@pytest.mark.parametrize(
    ("is_running", "started_by", "said"),
    [
        (False, "", "no local cluster of this checkout is running. Start one: ./deploy-cluster.sh local"),
        (True, "join", "Run this command where it was started"),
        (True, "run", "is starting or stopping"),
    ],
)
def test_a_cluster_that_cannot_be_changed_is_named(
    is_running: bool, started_by: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "is_running", lambda: is_running)
    monkeypatch.setattr(commands, "was_started_by", lambda command: command == started_by)
    monkeypatch.setattr(commands, "describe_membership", lambda: "This checkout has joined https://desk:3443")
    monkeypatch.setattr(running_cluster, "ADDRESS", tmp_path / "url")
    with pytest.raises(CommandError, match=said):
        running_cluster.find_api()
