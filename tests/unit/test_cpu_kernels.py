"""Tests that a CPU worker compiles kernels in the background, and offers a kind once a lane has its kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cpu_worker import child
from cpu_worker import kernels as kernels_module
from cpu_worker.kernels import Kernels
from cpu_worker.lane import ChildLane
from jobs.kinds import registry
from jobs.models import Device
from jobs.settings import Settings
from jobs.store.work.slots import JobFacts
from jobs.worker.lanes import LaneDied, LanePool
from jobs.worker.lifecycle import Worker
from tests.unit import lane_child

KINDS = ("k", "other")


class Started:
    """CPU worker with lanes whose children have the kernels that files of a folder describe."""

    def __init__(self, folder: Path, lanes: int, waiting: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.worker = Worker(Settings(), Device.CPU, lanes, kinds={"k": 1, "other": 2}, compiled=KINDS)
        self.asked: list[str] = []
        slots = SimpleNamespace(unsupported=lambda: list(waiting))
        link: Any = SimpleNamespace(
            store=SimpleNamespace(slots=slots), repeat_request=lambda: self.asked.append("next")
        )
        self.worker.link = link
        self.kernels = Kernels(self.worker, lanes)
        self.lanes = [ChildLane(str(number), self.kernels) for number in range(lanes)]
        self.pool = LanePool(self.lanes)
        server: Any = SimpleNamespace(
            pool=self.pool, kinds={}, busy=self.pool.busy, draining=False, slot=None, rates={}, stop=lambda: None
        )
        self.worker.server = server
        self.kernels.start()
        self.worker.repair_lanes()

    def compiled(self) -> list[str]:
        file = self.folder / "compiled"
        return file.read_text().split() if file.exists() else []

    def close(self) -> None:
        self.pool.stopping = True
        self.kernels.close()
        for lane in self.lanes:
            lane.close()


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setenv("KERNELS", str(tmp_path))
    monkeypatch.setattr(child, "main", lane_child.with_kernels)
    monkeypatch.setattr(kernels_module, "POLL_SECONDS", 0.02)
    monkeypatch.setattr("jobs.worker.lanes.REPAIR_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(registry, "kinds_for_device", lambda device: KINDS)
    started: list[Started] = []

    def make(*files: str, lanes: int = 1, waiting: tuple[str, ...] = ()) -> Started:
        for file in files:
            (tmp_path / file).touch()
        started.append(Started(tmp_path, lanes, waiting))
        return started[-1]

    yield make
    for one in started:
        one.close()


def until(true: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def facts(kind: str) -> JobFacts:
    return JobFacts(job_id="j", kind=kind, spec={}, queue="", total=9, expected_rate=1.0, nominal_rate=1.0)


def test_each_kernel_is_compiled_once_and_loaded_by_every_lane(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    started = start(lanes=2)
    worker = started.worker
    assert worker.row("idle")["compiling"] == "k,other" and worker.row("idle")["kinds"] == "{}"
    until(lambda: not worker.compiling)
    assert worker.kinds == {"k": 1, "other": 2} and worker.server and worker.server.kinds == worker.kinds
    until(lambda: all(lane.ready and lane.loaded == set(KINDS) for lane in started.lanes))
    assert sorted(started.compiled()) == ["k", "other"] and worker.row("idle")["compiling"] == ""
    assert [record.message for record in caplog.records].count("kernels ready") == 1
    assert started.asked == ["next", "next"], "an idle worker asks for work of the new kind at once"


def test_a_lane_computes_other_kinds_while_a_kernel_is_compiled(start: Start) -> None:
    started = start("other.cached", "k.slow")
    worker, (lane,) = started.worker, started.lanes
    until(lambda: started.compiled() and lane.ready)
    assert worker.kinds == {"other": 2} and worker.compiling == ("k",)
    with pytest.raises(LaneDied, match="has no kernel of k") as died:
        lane.compute_small([facts("k")])
    assert not died.value.touched and lane.ready, "it compiles nothing during a lease"
    (started.folder / "k.slow").unlink()
    until(lambda: worker.kinds == {"k": 1, "other": 2})


def test_kernels_of_waiting_jobs_are_compiled_first(start: Start) -> None:
    started = start(waiting=("other",))
    until(lambda: not started.worker.compiling)
    assert started.compiled() == ["other", "k"]


def test_a_kernel_that_a_job_waits_for_does_not_wait_for_another_one(start: Start) -> None:
    started = start("k.slow", waiting=("other",))
    until(lambda: "other" in started.worker.kinds)
    assert started.worker.compiling == ("k",)


def test_after_a_wrong_answer_lanes_start_without_the_code_of_the_fork_server() -> None:
    kernels = Kernels(Worker(Settings(), Device.CPU, 1, kinds={"thread": 1}, compiled=["thread"]), 1, can_fork=True)
    kernels.report_wrong("thread", child.Load(compilations=-1), "of an older compilation")
    assert kernels.can_fork
    kernels.report_wrong("thread", child.Load(), "wrong sum")
    assert not kernels.can_fork


@pytest.mark.parametrize("fault", ["wrong", "crash"])
def test_cached_code_that_is_wrong_is_compiled_again_once(start: Start, fault: str) -> None:
    started = start("k.cached", "other.cached", f"k.{fault}", lanes=2)
    until(lambda: all(lane.ready and lane.loaded == set(KINDS) for lane in started.lanes))
    assert started.compiled() == ["k"] and started.worker.refused == {}
    assert started.worker.kinds == {"k": 1, "other": 2}


def test_a_kind_that_stays_wrong_is_refused_and_others_are_computed(start: Start) -> None:
    started = start("k.cached", "other.cached", "k.wrong", "k.always")
    worker, (lane,) = started.worker, started.lanes
    until(lambda: not worker.compiling)
    row = worker.row("idle")
    assert (row["refused"], row["kinds"], row["compiling"]) == ("k: wrong sum", '{"other": 2}', "")
    until(lambda: lane.ready)
    os.kill(lane.pid or 0, 9)
    until(lambda: not lane.ready)
    lane.repair()
    assert lane.ready and lane.loaded == {"other"}


def test_a_kernel_that_cannot_be_compiled_excludes_only_its_kind(start: Start) -> None:
    started = start("k.broken")
    until(lambda: not started.worker.compiling)
    assert started.worker.refused == {"k": "TypingError"} and started.worker.kinds == {"other": 2}
    assert started.compiled().count("k") == 1


def test_a_process_that_dies_while_compiling_is_replaced_a_few_times(start: Start) -> None:
    started = start("k.killed", "other.cached")
    until(lambda: started.worker.refused)
    assert started.compiled() == ["k"] * kernels_module.MAX_DEATHS
    why = started.worker.refused["k"]
    assert why.startswith("3 processes died while they compiled its kernel, the last one: lane compile-k: ")
    assert started.worker.kinds == {"other": 2} and started.lanes[0].restarts == 0


def test_code_that_cannot_be_stored_is_compiled_by_each_lane(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    started = start("k.unstored", "other.cached", lanes=2)
    until(lambda: all(lane.ready and lane.loaded == set(KINDS) for lane in started.lanes))
    assert started.compiled() == ["k"] * 3
    [warning] = [record for record in caplog.records if "cannot store compiled code" in record.message]
    assert vars(warning)["unkept"] == {"k": "No space left on device"}


def test_a_worker_that_stops_waits_for_no_compilation(start: Start) -> None:
    started = start("k.slow", "other.slow", lanes=2)
    until(lambda: len(started.compiled()) == 2)
    processes = [one.child_process for one in started.kernels.compiling.values() if one]
    began = time.monotonic()
    started.close()
    assert time.monotonic() - began < 5 and len(processes) == 2
    assert not any(process.is_alive() for process in processes)
    time.sleep(0.1)
    assert started.worker.refused == {}


def compiler(started: Started, kind: str = "k") -> ChildLane:
    """Return the process that compiles a kernel, as soon as it exists."""
    until(lambda: started.kernels.compiling.get(kind))
    found = started.kernels.compiling[kind]
    assert found
    return found


def test_a_drained_worker_goes_on_compiling_and_stays_drained(start: Start) -> None:
    started = start("other.cached", "k.slow")
    worker: Any = started.worker
    until(lambda: started.compiled() == ["k"])
    worker.server.draining = True
    assert (worker.row()["state"], worker.row()["compiling"]) == ("drained", "k")
    (started.folder / "k.slow").unlink()
    until(lambda: not worker.compiling)
    assert worker.row()["state"] == "drained" and worker.kinds == {"k": 1, "other": 2}


def test_a_lane_that_dies_during_a_compilation_gets_its_kernels_back_at_once(start: Start) -> None:
    """The lease of the lane expires, and the worker must not wait for the compilation before it takes another one."""
    started = start("other.cached", "k.slow")
    (lane,) = started.lanes
    until(lambda: started.compiled() and lane.ready)
    os.kill(lane.pid or 0, 9)
    until(lambda: not lane.ready)
    lane.repair()
    assert lane.ready and lane.loaded == {"other"} and started.worker.compiling == ("k",)


@pytest.mark.parametrize("moment", ["starting", "compiling"])
def test_a_compilation_that_is_killed_twice_is_repeated(start: Start, moment: str) -> None:
    started = start("other.cached", "k.slow")
    killed: set[int | None] = set()
    while len(killed) < kernels_module.MAX_DEATHS - 1:
        until(lambda: compiler(started).pid not in killed)
        until(lambda: moment == "starting" or len(started.compiled()) > len(killed))
        killed.add(pid := compiler(started).pid)
        os.kill(pid or 0, 9)
    (started.folder / "k.slow").unlink()
    until(lambda: "k" in started.worker.kinds)
    assert started.worker.refused == {} and started.lanes[0].restarts == 0


def test_a_worker_stops_at_once_while_a_compiling_process_is_starting(start: Start) -> None:
    started = start("k.slow")
    process = compiler(started).child_process
    began = time.monotonic()
    started.close()
    assert time.monotonic() - began < 5 and not process.is_alive()
    until(lambda: not started.kernels.compiling)
    assert started.worker.refused == {}


def test_a_worker_whose_lanes_cannot_start_exits(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "main", lane_child.killed)
    retired: list[str] = []
    monkeypatch.setattr(Worker, "retire", lambda worker, why: retired.append(why))
    start()
    until(lambda: retired)
    assert "lane 0: its process does not start" in retired[0]


def test_a_worker_says_which_compiled_code_its_lanes_removed(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child, "main", lane_child.removed_some)
    with caplog.at_level("INFO"):
        started = start()
        until(lambda: started.lanes[0].restarts or "removed compiled code" in caplog.text)
    said = [one for one in caplog.records if "removed compiled code" in one.message]
    assert vars(said[0])["folders"] == ("k-1",)
