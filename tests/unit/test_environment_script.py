"""Tests deploy/environment.sh: its messages if the environment cannot be created, and that the next attempt works."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Program that creates environments whose pip behaves as the file `pip` describes.
PYTHON = """#!/bin/bash
case "$*" in
  "-m venv .venv") [[ ! -e broken-venv ]] || { echo "Error: [Errno 28] No space left on device"; exit 1; }
    mkdir -p .venv/bin .venv/lib && cp "$0" .venv/bin/python ;;
  "-m pip install"*) mkdir installing || touch twice; sleep 0.3; rmdir installing
    [[ ! -e pip ]] || { cat pip; exit 1; } ;;
  *sysconfig*) echo .venv/lib ;;
  --version) echo Python 3.11.9 ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("deploy", "requirements"):
        (tmp_path / name).mkdir()
    shutil.copy(ROOT / "deploy/environment.sh", tmp_path / "deploy")
    (tmp_path / "requirements/local.txt").write_text("one==1\n")
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make(checkout: Path, group: str = "local") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "deploy/environment.sh", group],
        cwd="/",
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": str(checkout / "python")},
    )


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("ERROR: Could not install packages: [Errno 28] No space left on device", ("the disk is full", "df -h")),
        ("ERROR: No matching distribution found for one==1", ("pip needs a package index", "PIP_INDEX_URL")),
    ],
)
def test_a_failed_installation_says_why_and_the_next_try_goes_on(
    checkout: Path, said: str, words: tuple[str, ...]
) -> None:
    (checkout / "pip").write_text(f"Collecting one==1\n{said}\n")
    failed = make(checkout)
    assert failed.returncode == 1
    for each in (said, *words):
        assert each in failed.stderr
    (checkout / "pip").unlink()
    done = make(checkout)
    assert done.returncode == 0, done.stderr
    assert "was created for another folder" not in done.stderr
    again = make(checkout)
    assert (again.returncode, again.stderr) == (0, ""), "what is there is not made again"


def test_tracing_adds_its_packages_once(checkout: Path) -> None:
    (checkout / "requirements/tracing.txt").write_text("two==1\n")
    assert make(checkout).returncode == 0
    added = make(checkout, "tracing")
    assert added.returncode == 0 and "Installing requirements/tracing.txt" in added.stderr
    assert make(checkout, "tracing").stderr == make(checkout).stderr == ""


def test_an_environment_that_was_not_made_is_made_the_next_time(checkout: Path) -> None:
    (checkout / "broken-venv").touch()
    failed = make(checkout)
    assert failed.returncode == 1 and "could not create .venv; see the lines above" in failed.stderr
    (checkout / "broken-venv").unlink()
    assert make(checkout).returncode == 0


@pytest.mark.skipif(shutil.which("flock") is None, reason="macOS has no flock")
def test_two_starts_at_once_install_one_after_the_other(checkout: Path) -> None:
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(make, [checkout, checkout]))
    assert [done.returncode for done in both] == [0, 0], both
    assert not (checkout / "twice").exists()
    assert sum(done.stderr.count("Installing requirements") for done in both) == 1
