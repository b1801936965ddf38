"""Tests that compiled code with wrong answers gets no work, is compiled again, and is otherwise rejected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpu_worker import __main__ as worker_module
from cpu_worker import child
from cpu_worker.lane import ChildLane
from jobs.kinds import registry
from jobs.models import Device
from jobs.settings import Settings
from jobs.store.work.slots import JobFacts
from jobs.worker import known_answers
from jobs.worker.api.links import CannotStart
from jobs.worker.lanes import LaneDied
from jobs.worker.lifecycle import Worker
from tests.unit import lane_child

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "definition.py": """
from pydantic import BaseModel
from jobs.kinds.contract import Kind
from jobs.models import Plan

class Parameters(BaseModel):
    count: int = 10

class Sums(Kind):
    model_version = 1
    summary = "Sums."
    example = {}
    parameters = Parameters

    def plan(self, parameters):
        return Plan(total=parameters.count, spec={}, parameters={}, devices=(), cpu_seconds=0.0)

    def merge(self, left, right):
        return {"sum": left["sum"] + right["sum"], "hits": 0}

    def result(self, spec, partial):
        return partial

KIND = Sums()
""",
    "constants.py": "ADDED = 1\n",
    "cpu_kernel.py": """
from numba import njit
from jobs.kinds.sums.constants import ADDED

@njit(cache=True)
def _sum(lo, hi):
    return sum([unit + ADDED for unit in range(lo, hi)])

def warm():
    _sum(0, 1)

def run(spec, lo, hi, tick):
    return hi, {"sum": int(_sum(lo, hi)), "hits": sum(_sum.stats.cache_hits.values()) * 0}
""",
    "cpu_known.json": json.dumps([{"parameters": {"count": 10}, "lo": 2, "hi": 10, "partial": {"sum": 52, "hits": 0}}]),
}
#: Program that prints the kind's state and how often code came from the cache; `prototype` computes another sum.
WARM = """
import json, sys
from cpu_worker import child
from jobs.kinds import registry
registry.kinds_for_device = lambda device: ("sums",)
if "prototype" in sys.argv:
    from jobs.kinds.sums import constants
    constants.ADDED = 2
warmed = child.warm(["sums"] if "anew" in sys.argv else ())
hits = sum(sys.modules["jobs.kinds.sums.cpu_kernel"]._sum.stats.cache_hits.values())
print(json.dumps([list(warmed.seconds), warmed.wrong, hits]))
"""


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """Create a folder for PYTHONPATH with a kind that adds numbers."""
    folder = tmp_path / "jobs" / "kinds" / "sums"
    folder.mkdir(parents=True)
    for package in (folder.parents[1], folder.parent, folder):
        (package / "__init__.py").touch()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return tmp_path


def warm(folder: Path, *words: str) -> tuple[dict[str, str], int]:
    """Warm the kind in a new process. Return the errors by kind, and how often its code came from the cache."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", WARM, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    kinds, wrong, hits = json.loads(done.stdout)
    assert kinds == ["sums"]
    return wrong, hits


def test_wrong_code_under_the_right_checksum_is_found_out_and_compiled_anew(sums: Path) -> None:
    wrong, hits = warm(sums, "prototype")
    assert (list(wrong), hits) == (["sums"], 0)
    former = sums / "cache" / "sums-0123456789abcdef-01234567"
    former.mkdir()
    os.utime(former, (0, 0))
    wrong, hits = warm(sums)
    assert not former.exists(), "nothing had used it for a month"
    assert hits == 1 and wrong == {"sums": 'units 2..9 of {"count": 10}: wrong sum'}
    assert warm(sums, "anew") == ({}, 0)
    (data,) = (sums / "cache").rglob("*.nbc")
    data.write_bytes(data.read_bytes()[:100])
    (why,) = warm(sums)[0].values()
    assert "Error: " in why


def test_the_answer_says_which_part_of_it_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = known_answers.questions("collatz", Device.GPU)[1]
    seen = {**asked["partial"], "checksum": 1, "blocks": 2, "more": 3}

    class Kernel:
        @staticmethod
        def run(spec: Any, lo: int, hi: int, tick: Any) -> Any:
            return hi - (not tick(hi)), seen

    monkeypatch.setattr("jobs.worker.known_answers.registry.kernel", lambda kind, device: Kernel)
    with pytest.raises(known_answers.WrongAnswer, match="wrong blocks, checksum, more"):
        known_answers.ask("collatz", Device.CPU, asked)


# -- the worker's side ------------------------------------------------------------------------------------------------


@pytest.fixture
def worker() -> Worker:
    return Worker(Settings(), Device.CPU, 3, kinds={"k": 1, "other": 2})


@pytest.fixture
def started() -> Iterator[list[ChildLane]]:
    made: list[ChildLane] = []
    yield made
    for lane in made:
        lane.close()


def test_lanes_whose_code_is_wrong_load_what_the_first_compiles_anew(
    worker: Worker, started: list[ChildLane], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WRONG_UNTIL", str(tmp_path / "right"))
    monkeypatch.setattr(child, "main", lane_child.wrong_until_anew)
    started.extend(worker_module.start_lanes(worker, 2))
    assert [lane.restarts for lane in started] == [1, 1] and all(lane.ready for lane in started)
    assert (tmp_path / "right").read_text() == "k\n", "one compiles anew"
    assert worker.refused == {} and worker.kinds == {"k": 1, "other": 2} and "refused" not in worker.row("starting")


def test_a_worker_says_which_compiled_code_its_lanes_removed(
    worker: Worker, started: list[ChildLane], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child, "main", lane_child.removed_some)
    with caplog.at_level("INFO"):
        started.extend(worker_module.start_lanes(worker, 1))
    (said,) = [one for one in caplog.records if "removed compiled code" in one.message]
    assert vars(said)["folders"] == ["k-1"]


def test_a_worker_warns_if_compiled_code_cannot_be_kept(
    worker: Worker, started: list[ChildLane], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child, "main", lane_child.kept_nothing)
    started.extend(worker_module.start_lanes(worker, 1))
    [warning] = [record for record in caplog.records if "cannot store compiled code" in record.message]
    assert vars(warning)["unkept"] == {"k": "No space left on device"} and worker.refused == {}


def test_a_kind_that_stays_wrong_is_refused_and_others_are_served(
    worker: Worker, started: list[ChildLane], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child, "main", lane_child.always_wrong)
    started.extend(worker_module.start_lanes(worker, 2))
    row = worker.row("starting")
    assert (row["kinds"], row["refused"]) == ('{"other": 2}', "k: wrong sum")
    assert "this worker does not compute jobs of kind k: wrong sum" in caplog.text
    facts = JobFacts(job_id="j", kind="k", spec={}, queue="", total=9, expected_rate=1.0, nominal_rate=1.0)
    with pytest.raises(LaneDied, match="the worker refuses k") as died:
        started[0].compute_small([facts])
    assert not died.value.touched and started[0].ready
    os.kill(started[0].pid or 0, 9)
    started[0].repair()
    assert started[0].ready, "a kind that is refused anyway keeps no lane away from others"


def test_code_that_crashes_its_child_is_compiled_anew(
    worker: Worker, started: list[ChildLane], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WRONG_UNTIL", str(tmp_path / "right"))
    monkeypatch.setattr(child, "main", lane_child.crashed_until_anew)
    started.extend(worker_module.start_lanes(worker, 1))
    assert (tmp_path / "right").read_text() == " ".join(registry.kinds_for_device(Device.CPU))
    assert started[0].ready and worker.refused == {}


def test_a_child_that_is_killed_while_it_warms_has_nothing_compiled_anew(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "main", lane_child.killed)
    with pytest.raises(CannotStart, match="during kernel compilation"):
        worker_module.start_lanes(worker, 1)


def test_a_child_that_turns_wrong_later_has_its_worker_end(
    monkeypatch: pytest.MonkeyPatch, started: list[ChildLane]
) -> None:
    why: list[str] = []
    monkeypatch.setattr(child, "main", lane_child.main)
    started.append(lane := ChildLane("0", {}, why.append))
    lane.warm_up()
    monkeypatch.setattr(child, "main", lane_child.always_wrong)
    os.kill(lane.pid or 0, 9)
    with pytest.raises(LaneDied, match="wrong kernels: k"):
        lane.repair()
    assert why == ["the kernel of k is still wrong after recompilation: wrong sum"] and not lane.ready
    assert lane.restarts == 2, "it was compiled again before"
    monkeypatch.setattr("cpu_worker.lane.child.main", lane_child.main)
    lane.repair()
    assert lane.ready
