"""Tests how programs under supervisord are stopped."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.local import supervision
from deploy.local.cluster_programs import Program
from deploy.local.processes import Run
from jobs.settings import Settings

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
    monkeypatch.setattr(supervision, "STATE_FOLDER", tmp_path)
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


def test_profiles_are_recorded_in_the_folder_of_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings were once in a temporary folder, which `cleanup` did not delete."""
    started: list[dict[str, str]] = []
    monkeypatch.delenv("PROFILE_DIR", raising=False)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: started.append(env))
    for folder in ("", "/var/profiles"):
        monkeypatch.setattr(supervision, "load", lambda folder=folder: Settings(profile_dir=folder))
        supervision.start(tmp_path / "supervisord.conf", Run.new(tmp_path), CLUSTER_TOKEN="")
    assert [env["PROFILE_DIR"] for env in started] == [".cluster/profiles", "/var/profiles"]


#: Module in place of `deploy.local.supervisor_daemon` whose new processes execute their program two seconds late.
SLOW = """
import os, runpy, sys, time
forked = sys.argv.pop()
os.register_at_fork(after_in_child=lambda: (open(forked, "w").close(), time.sleep(2)))
runpy.run_module("MODULE", run_name="__main__")
"""


def test_a_program_that_is_stopped_before_it_is_executed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal once reached supervisord's handler in the new process, and the stop took 30 seconds."""
    folder = tmp_path / ".cluster"
    folder.mkdir()
    monkeypatch.setattr(supervision, "LOCAL_FOLDER", folder)
    monkeypatch.setattr(supervision, "STATE_FOLDER", tmp_path)
    program = Program(name="late", command=("/bin/sleep", "60"), environment={}, priority=30)
    run = Run.new(folder)
    command = run.command

    def slowed(*words: str) -> list[str]:
        started = [sys.executable, "-c", SLOW.replace("MODULE", words[2]), *words[3:]]
        return command(*started, str(tmp_path / "forked"))

    monkeypatch.setattr(Run, "command", lambda _run, *words: slowed(*words))
    supervisor = supervision.start(supervision.write_programs([program], run), run)
    until = time.monotonic() + 20
    while not (tmp_path / "forked").exists() and time.monotonic() < until:
        time.sleep(0.02)
    began = time.monotonic()
    supervision.end(supervisor, run)
    assert (tmp_path / "forked").exists() and time.monotonic() - began < 15
