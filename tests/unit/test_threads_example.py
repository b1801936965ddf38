"""Tests that the Threads page's presets and example match the simulator."""

from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from jobs.kinds.thread.definition import KIND
from jobs.kinds.thread.reference_replica import Replica

WEB = Path(__file__).resolve().parents[2] / "web"
PRESETS = json.loads((WEB / "src/pages/threads/model/presets.json").read_text())
EXAMPLE = json.loads((WEB / "src/pages/threads/example.json").read_text())


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset["title"])
def test_a_preset_is_accepted_and_takes_seconds(preset: dict[str, Any]) -> None:
    plan = KIND.plan(KIND.parameters.model_validate(preset["parameters"]))
    threads = Replica(plan.spec, 0, 0).row()["threads"]
    # One core simulates some 20 million threads a second.
    assert 0 < plan.total * threads < 20_000_000


def test_the_example_is_a_run_of_the_simulator() -> None:
    script = run_path(str(WEB / "scripts" / "threads-example.py"))
    assert json.loads(json.dumps(script["trace"]())) == EXAMPLE["trace"]
    spec = KIND.plan(KIND.parameters.model_validate(script["PARAMETERS"])).spec
    [cell] = EXAMPLE["result"]["cells"]
    for name in ("fastest", "slowest"):
        found = cell["examples"][name]
        assert Replica(spec, 0, found["replica"]).row()["makespan_ns"] == round(found["makespan_us"] * 1000)
    assert cell["metrics"]["makespan_us"]["min"] == cell["examples"]["fastest"]["makespan_us"]
    assert sum(count for _, count in cell["histograms"]["makespan_ns"]["bins"]) == 300 == cell["replicas"]
