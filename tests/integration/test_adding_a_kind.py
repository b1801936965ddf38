"""docs/adding-a-kind.md is true: its code passes the contract tests and computes a job."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from math import isqrt
from pathlib import Path

import pytest

from tests.integration.live import TOP, running

PAGE = TOP / "docs" / "adding-a-kind.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's files, laid out as it says."""
    text = PAGE.read_text()
    for name, code in re.findall(r"```python\n# (jobs/\S+)\n(.*?)```", text, re.DOTALL):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    for package in ("jobs", "jobs/kinds", "jobs/kinds/circle"):
        (tmp_path / package / "__init__.py").touch()
    return tmp_path


def golden() -> dict[str, object]:
    [text] = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    case: dict[str, object] = json.loads(text)["cases"][0]
    return case


def test_its_kind_passes_the_contract(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "tests/contract/test_every_kind.py",
        "-k",
        "circle",
        "-p",
        "no:cacheprovider",
    ]
    path = f"{folder}:{TOP}"
    ran = subprocess.run(command, cwd=TOP, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed and int(passed[1]) >= 5, ran.stdout


def test_its_kind_computes_its_published_answer(folder: Path) -> None:
    case = golden()
    (live := folder / "live").mkdir()
    with running(live, PYTHONPATH=f"{folder}:{TOP}") as cluster:
        assert cluster.result(cluster.submit("circle", case["parameters"])) == case["result"]  # type: ignore[arg-type]
        radius = 6_000_000
        points = sum((1 if x == 0 else 2) * (2 * isqrt(radius**2 - x * x) + 1) for x in range(radius + 1))
        assert cluster.result(cluster.submit("circle", {"radius": radius})) == {"points": points}
