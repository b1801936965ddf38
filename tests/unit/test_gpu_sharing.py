"""Tests when a GPU worker hands its GPU to programs, and how it becomes a process without CUDA."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpu_worker.sharing import GpuSharing

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("wanted", "computed", "way"),
    [
        ("", "low", False),
        ("normal", "normal", True),
        ("low", "normal", False),
        ("high", "normal", True),
        ("normal", "high", False),
        ("low", "", False),
        ("normal", "", True),
        ("interactive", "interactive", True),
    ],
)
def test_programs_of_the_same_priority_or_a_higher_one_get_the_gpu(wanted: str, computed: str, way: bool) -> None:
    assert GpuSharing().gives_way(wanted, True, computed) is way


def test_a_worker_without_work_gives_way_after_ten_seconds_to_any_program() -> None:
    now = [100.0]
    sharing = GpuSharing(lambda: now[0])
    now[0] = 109.0
    assert not sharing.gives_way("low", False, "")
    assert not sharing.gives_way("low", True, "high")
    now[0] = 118.9
    assert not sharing.gives_way("low", False, "")
    now[0] = 119.0
    assert sharing.gives_way("low", False, "") and not sharing.gives_way("", False, "")


def test_a_process_begins_anew_under_its_number_with_the_gpus_that_it_could_see(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys; from jobs import settings; chosen = settings.load();"
        " begun = pathlib.Path(sys.argv[1]); print(os.getpid(), chosen.cuda_visible_devices, flush=True);"
        " begun.exists() and sys.exit(); begun.touch();"
        " settings.hide_other_gpus('GPU-x'); settings.restart_process(chosen.cuda_visible_devices)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "begun"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={"CUDA_VISIBLE_DEVICES": "0,1", "PYTHONPATH": str(TOP)},
    )
    first, second = ran.stdout.splitlines()
    assert first == second and first.endswith(" 0,1")
