"""Tests that compiled code with wrong answers gets no work, is compiled again, and is otherwise rejected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.models import Device
from jobs.worker import known_answers

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
child.remove_unused()
loaded = child.load(None, "sums", child.Load(may_compile=True, recompile="anew" in sys.argv))
hits = sum(sys.modules["jobs.kinds.sums.cpu_kernel"]._sum.stats.cache_hits.values())
print(json.dumps([loaded.wrong, hits]))
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


def warm(folder: Path, *words: str) -> tuple[str, int]:
    """Load the kind in a new process. Return the error, and how often its code came from the cache."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", WARM, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    wrong, hits = json.loads(done.stdout)
    return wrong, hits


def test_wrong_code_under_the_right_checksum_is_found_out_and_compiled_anew(sums: Path) -> None:
    wrong, hits = warm(sums, "prototype")
    assert (bool(wrong), hits) == (True, 0)
    former = sums / "cache" / "sums-0123456789abcdef-01234567"
    former.mkdir()
    os.utime(former, (0, 0))
    wrong, hits = warm(sums)
    assert not former.exists(), "nothing had used it for a month"
    assert hits == 1 and wrong == 'units 2..9 of {"count": 10}: wrong sum'
    assert warm(sums, "anew") == ("", 0)
    (data,) = (sums / "cache").rglob("*.nbc")
    data.write_bytes(data.read_bytes()[:100])
    assert "Error: " in warm(sums)[0]


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
