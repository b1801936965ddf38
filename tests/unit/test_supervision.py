"""Tests how programs under supervisord are stopped."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from deploy.local import supervision
from deploy.local.processes import Run
from deploy.local.supervision import Program

#: Program that exits with 0 only if the others are told to stop while it is running.
WORKER = """
import pathlib, signal, sys, time
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
def stop(*_):
    (folder / f"{name}.asked").touch()
    until = time.monotonic() + 20
    while len(list(folder.glob("*.asked"))) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    together = len(list(folder.glob("*.asked"))) == 3
    (folder / f"{name}.{'together' if together else 'alone'}").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
(folder / f"{name}.up").touch()
while True:
    time.sleep(1)
"""


def test_workers_are_stopped_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers once stopped one after another, and the last ones were killed and reported as lost."""
    folder = tmp_path / ".cluster"
    folder.mkdir()
    monkeypatch.setattr(supervision, "LOCAL_FOLDER", folder)
    monkeypatch.setattr(supervision, "CHECKOUT", tmp_path)
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    names = ("attic-cpu-1", "attic-cpu-2", "attic-runner-1")
    programs = [
        Program(name=name, command=(sys.executable, str(script), str(tmp_path), name), environment={}, priority=30)
        for name in names
    ]
    run = Run.new(folder)
    supervisor = supervision.start(supervision.write_programs(programs, run), run)
    try:
        until = time.monotonic() + 60
        while len(list(tmp_path.glob("*.up"))) < 3 and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        supervision.end(supervisor, run)
    assert {path.name for path in tmp_path.glob("*.together")} == {f"{name}.together" for name in names}
