"""Compiled code never outlives its sources, and a kind's change leaves the others' compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import kinds
from jobs.kinds import compiled_code

ROOT = Path(__file__).resolve().parents[2]
KERNEL = """
from numba import njit
from jobs.kinds.{kind}.deep.constants import ADDED

@njit(cache=True)
def added(x):
    return x + ADDED
"""
ADD = """
from jobs.kinds import compiled_code
compiled_code.keep_apart()
from jobs.kinds.even import kernel as even
from jobs.kinds.odd import kernel as odd
for function in (even.added, odd.added):
    print(function(1), sum(function.stats.cache_hits.values()))
"""


@pytest.fixture
def two_kinds(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with two kinds, whose kernels call constants in a folder of their own."""
    for kind in ("even", "odd"):
        deep = tmp_path / "jobs" / "kinds" / kind / "deep"
        deep.mkdir(parents=True)
        for package in (*deep.parents[:4], deep):
            (package / "__init__.py").touch()
        (deep.parent / "kernel.py").write_text(KERNEL.format(kind=kind))
        (deep / "constants.py").write_text("ADDED = 1\n")
    return tmp_path


def added(folder: Path) -> list[str]:
    """Return what a new process answers for each kind: 1 + ADDED and how often it took the code from the cache."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", ADD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_change_at_any_depth_compiles_its_own_kind_anew_and_no_other(two_kinds: Path) -> None:
    assert added(two_kinds) == ["2 0", "2 0"]
    (two_kinds / "jobs" / "kinds" / "odd" / "deep" / "constants.py").write_text("ADDED = 2\n")
    assert added(two_kinds) == ["2 1", "3 0"]
    assert added(two_kinds) == ["2 1", "3 1"]


EDIT = """
import sys
from pathlib import Path
from jobs.kinds import compiled_code
compiled_code.keep_apart()
odd_source, even_source = map(Path, sys.argv[1:])
from jobs.kinds.odd.deep import constants
odd_source.write_text("ADDED = 7\\n")
from jobs.kinds.odd import kernel as odd  # its checksum is that of the new text
from jobs.kinds.even import kernel as even
even_source.write_text("ADDED = 7\\n")
print(odd.added(1), even.added(1))
"""


def test_what_was_compiled_of_a_text_that_has_changed_since_is_not_kept(two_kinds: Path) -> None:
    sources = [str(two_kinds / "jobs" / "kinds" / kind / "deep" / "constants.py") for kind in ("odd", "even")]
    environment = {**os.environ, "PYTHONPATH": f"{two_kinds}:{ROOT}", "NUMBA_CACHE_DIR": str(two_kinds / "cache")}
    command = [sys.executable, "-c", EDIT, *sources]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "2 2\n"
    assert not [path for path in (two_kinds / "cache").rglob("*") if path.is_file()]


def test_what_kinds_share_is_in_the_checksum_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "random.py"
    shared.write_text("X = 1\n")
    monkeypatch.setattr(compiled_code, "SHARED", tmp_path)
    before = [compiled_code.checksum.__wrapped__(kind) for kind in ("", "collatz", "thread")]
    shared.write_text("X = 2\n")
    after = [compiled_code.checksum.__wrapped__(kind) for kind in ("", "collatz", "thread")]
    assert len({*before, *after}) == 6


def test_a_copy_of_the_sources_elsewhere_shares_the_compiled_code(
    two_kinds: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = two_kinds / "jobs" / "kinds"
    copy = tmp_path_factory.mktemp("copy") / "kinds"
    subprocess.run(["cp", "-R", folder, copy], check=True)
    places = []
    for path in (folder, copy):
        monkeypatch.setattr(kinds, "__path__", [str(path)])
        locator = compiled_code.Locator.from_function(compiled_code.folder, str(path / "odd" / "deep" / "constants.py"))
        compiled_code.checksum.cache_clear()
        places.append((locator.get_cache_path(), locator.get_source_stamp()))
    assert places[0] == places[1]


COMPILE = """
import sys, time
from jobs.kinds import compiled_code
with compiled_code.one_compiles("collatz"):
    print("in", time.monotonic(), flush=True)
    if sys.argv[1] == "dies":
        raise SystemExit(1)
    time.sleep(float(sys.argv[1]))
    print("out", time.monotonic(), flush=True)
"""


def compiling(cache: Path, what: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", COMPILE, what]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def spent(process: subprocess.Popen[str]) -> tuple[float, float]:
    """Return when it went in and out, by its clock."""
    words = process.communicate(timeout=60)[0].split()
    return float(words[1]), float(words[3])


def test_one_process_compiles_and_the_others_then_load_at_once(tmp_path: Path) -> None:
    died = compiling(tmp_path, "dies")
    assert "out" not in died.communicate(timeout=60)[0]
    first, second = sorted(spent(process) for process in [compiling(tmp_path, "0.7") for _ in range(2)])
    assert first[1] <= second[0]
    together = [compiling(tmp_path, "600") for _ in range(2)]
    for process in together:
        assert process.stdout and process.stdout.readline().startswith("in"), "it waits for the other"
    for process in together:
        process.kill()
        process.communicate()


MEANWHILE = """
from jobs.kinds import compiled_code
for kind in ("collatz", "thread"):
    with compiled_code.one_compiles(kind, wait=False) as mine:
        print(mine)
"""


def test_who_does_not_wait_compiles_what_nobody_else_does(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", MEANWHILE]
    with compiling(tmp_path, "600") as first:
        assert first.stdout and first.stdout.readline().startswith("in")
        meanwhile = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        first.kill()
    assert meanwhile.stdout.split() == ["False", "True"]
    afterwards = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert afterwards.stdout.split() == ["True", "True"]
