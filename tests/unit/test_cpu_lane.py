"""Tests a lane of a CPU worker: how the child handles bad partials, and when the parent's handle is ready for work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import numpy
import pytest

from cpu_worker import child
from cpu_worker import lane as lanes
from cpu_worker.lane import ChildLane
from jobs import errors
from jobs.store.work.leases import Grant
from jobs.store.work.slots import JobFacts
from jobs.worker import execution
from jobs.worker.execution import Computed
from jobs.worker.lanes import LaneDied, Task
from tests import kernels
from tests.unit import lane_child


def test_a_kernel_that_returns_numpys_integers_fails_its_job_and_not_its_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(*_: Any) -> Computed:
        return Computed(upto=5, partial={"sum": numpy.int64(10)}, seconds=0.1)

    monkeypatch.setattr(execution, "compute", compute)
    answer = child.compute_lease([0, 0], "k", {}, 0, 5, 2.0)
    assert isinstance(answer, errors.KernelFailed)
    assert "k on cpu: cannot encode the partial result as JSON: TypeError: Object of type int64" in str(answer)


def test_a_child_says_which_of_its_small_jobs_it_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, seen = [0, 0], []

    def whole(kind: str, *_: Any) -> str:
        seen.append((kind, shared[child.UPTO]))
        return kind

    monkeypatch.setattr(execution, "compute_small_job", whole)
    assert child.compute_small(shared, [("a", {}, 1), ("b", {}, 1), ("c", {}, 1)]) == ["a", "b", "c"]
    assert seen == [("a", 0), ("b", 1), ("c", 2)]


class OneKernel:
    """States of one compiled kernel, which every lane loads."""

    can_fork = False

    def loadable(self, loaded: AbstractSet[str]) -> list[str]:
        return sorted({"k"} - loaded)

    def load_options(self, kind: str) -> child.Load:
        return child.Load()

    def report_loaded(self, kind: str, loaded: child.Loaded) -> None: ...

    def report_missing(self, kind: str) -> None: ...

    def report_wrong(self, kind: str, how: child.Load, why: str) -> None: ...

    def report_failed_start(self, why: str) -> None: ...


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildLane]:
    """Return a lane whose child sleeps."""
    monkeypatch.setattr(child, "main", lane_child.main)
    made = ChildLane("0", OneKernel())
    made.repair()
    yield made
    made.close()


def test_a_lane_that_cannot_be_forked_is_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork server can crash while it loads damaged code."""

    def end(_: Any) -> None:
        raise EOFError

    monkeypatch.setattr(child, "main", lane_child.main)
    monkeypatch.setattr(lanes.fork_context.Process, "start", end)
    states = OneKernel()
    states.can_fork = True
    made = ChildLane("0", states)
    made.repair()
    assert made.compute(task(0.001))[0].upto == 9 and not states.can_fork
    made.close()


def test_a_fork_server_loads_all_kernels_and_leaves_signals_to_the_worker() -> None:
    assert kernels.compile_all() == {}
    program = (
        "import signal; from cpu_worker import child, template\n"
        "print(*sorted(child.warm_kinds), signal.getsignal(signal.SIGTERM).name, signal.alarm(0))"
    )
    environment = {**os.environ, **kernels.ENVIRONMENT}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=kernels.TOP, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["collatz", "faulty", "paced", "thread", "SIG_IGN", "0"]


def task(chunk_seconds: float) -> Task:
    spec = {"chunk_seconds": chunk_seconds}
    facts = JobFacts(job_id="j", kind="k", spec=spec, queue="", total=9, expected_rate=1.0, nominal_rate=1.0)
    return Task(facts, Grant(token="t", lo=0, hi=9))


def test_a_lane_that_is_told_to_drop_lets_go_at_once_and_keeps_its_child(
    lane: ChildLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk takes five seconds, like 300 ms on a busy machine, where starting a new child takes longer."""
    monkeypatch.setattr(lanes, "LATE_SECONDS", 60.0)
    pid, late = lane.pid, task(5.0)
    late.ask_to_stop(2)
    asked = time.monotonic()
    with pytest.raises(LaneDied):
        lane.compute(late)
    assert time.monotonic() - asked < 4.9
    assert not lane.ready
    lane.repair()
    assert lane.ready and lane.pid == pid and lane.restarts == 0
    assert lane.compute(task(0.001))[0].upto == 9


def test_a_child_that_does_not_come_back_is_replaced(lane: ChildLane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "LATE_SECONDS", 1.0)
    pid, hung = lane.pid, task(3600)
    hung.ask_to_stop(2)
    with pytest.raises(LaneDied):
        lane.compute(hung)
    lane.repair()
    assert lane.ready and lane.pid != pid
    assert lane.compute(task(0.001))[0].upto == 9


def test_a_child_that_was_killed_while_idle_touches_no_work(lane: ChildLane) -> None:
    os.kill(lane.pid or 0, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while lane.ready and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(LaneDied) as died:
        lane.compute(task(0.001))
    assert not died.value.touched and lane.restarts == 0, "it is replaced outside of any lease"
    lane.repair()
    assert lane.ready and lane.restarts == 1


def test_a_lane_whose_new_child_could_not_be_started_is_mended_later(
    lane: ChildLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without free memory or processes, the lane was once lost permanently and the worker hung at its end."""
    os.kill(lane.pid or 0, signal.SIGKILL)
    lane.child_process.join()
    start = lanes.spawn_context.Process.start

    def refuse(_: Any) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(lanes.spawn_context.Process, "start", refuse)
    for _ in range(2):
        with pytest.raises(OSError, match="temporarily"):
            lane.repair()
        assert not lane.ready
    monkeypatch.setattr(lanes.spawn_context.Process, "start", start)
    lane.repair()
    assert lane.ready and lane.compute(task(0.001))[0].upto == 9


def test_a_closed_lane_starts_no_child(lane: ChildLane) -> None:
    lane.close()
    with pytest.raises(LaneDied, match="the worker is stopping"):
        lane.repair()


def test_small_jobs_that_nobody_wants_any_more_are_given_up_and_their_child_replaced(
    lane: ChildLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel being compiled reads no messages, so cancelling a small job once took until the lease expired."""
    monkeypatch.setattr(lanes, "LATE_SECONDS", 0.1)
    pid, asked = lane.pid, iter([False, False, True])
    with pytest.raises(LaneDied, match="cancelled"):
        lane.compute_small([task(3600).facts], lambda: next(asked))
    lane.repair()
    assert lane.ready and lane.pid != pid and lane.compute(task(0.001))[0].upto == 9


def test_a_child_that_ends_soon_after_its_small_jobs_were_dropped_is_kept(lane: ChildLane) -> None:
    pid = lane.pid
    with pytest.raises(LaneDied, match="cancelled"):
        lane.compute_small([task(0.5).facts], lambda: True)
    lane.repair()
    assert lane.ready and lane.pid == pid
