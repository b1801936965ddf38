"""Tests that compiled code is never older than its sources, and that a change of a kind does not recompile others."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

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
import importlib
from jobs.kinds import code_sets
for kind in ("even", "odd"):
    with code_sets.compile_once(kind):
        function = importlib.import_module(f"jobs.kinds.{kind}.kernel").added
        print(function(1), sum(function.stats.cache_hits.values()))
"""


@pytest.fixture
def two_kinds(tmp_path: Path) -> Path:
    """Create a folder for PYTHONPATH with two kinds, whose kernels use constants in a separate folder."""
    for kind in ("even", "odd"):
        deep = tmp_path / "jobs" / "kinds" / kind / "deep"
        deep.mkdir(parents=True)
        for package in (*deep.parents[:4], deep):
            (package / "__init__.py").touch()
        (deep.parent / "kernel.py").write_text(KERNEL.format(kind=kind))
        (deep / "constants.py").write_text("ADDED = 1\n")
    return tmp_path


def added(folder: Path) -> list[str]:
    """Return each kind's answer from a new process: 1 + ADDED, and how often the code came from the cache."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", ADD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def look_old(folder: Path) -> None:
    """Make a folder look unused for two months."""
    then = time.time() - 2 * compiled_code.KEPT_SECONDS
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (then, then))


def test_a_change_at_any_depth_compiles_its_own_kind_anew_and_no_other(
    two_kinds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert added(two_kinds) == ["2 0", "2 0"]
    former = {path.name for path in (two_kinds / "cache").glob("odd-*")}
    (two_kinds / "jobs" / "kinds" / "odd" / "deep" / "constants.py").write_text("ADDED = 2\n")
    assert added(two_kinds) == ["2 1", "3 0"]
    for folder in (two_kinds / "cache").iterdir():
        look_old(folder)
    assert added(two_kinds) == ["2 1", "3 1"]
    monkeypatch.setattr(compiled_code, "cache_root", lambda: two_kinds / "cache")
    assert former == set(compiled_code.remove_unused()), "who loads code says that it is used"


EDIT = """
import sys
from pathlib import Path
from jobs.kinds import code_sets
odd_source, even_source = map(Path, sys.argv[1:])
from jobs.kinds.odd.deep import constants
odd_source.write_text("ADDED = 7\\n")
with code_sets.compile_once("odd"):  # its checksum is that of the new text
    from jobs.kinds.odd import kernel as odd
    print(odd.added(1))
with code_sets.compile_once("even"):
    from jobs.kinds.even import kernel as even
    even_source.write_text("ADDED = 7\\n")
    print(even.added(1))
print(*code_sets.unsaved_kinds().values(), sep="\\n")
"""


def test_what_was_compiled_of_a_text_that_has_changed_since_is_not_kept(two_kinds: Path) -> None:
    sources = [str(two_kinds / "jobs" / "kinds" / kind / "deep" / "constants.py") for kind in ("odd", "even")]
    environment = {**os.environ, "PYTHONPATH": f"{two_kinds}:{ROOT}", "NUMBA_CACHE_DIR": str(two_kinds / "cache")}
    command = [sys.executable, "-c", EDIT, *sources]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["2", "2", *["its sources have changed since this process started"] * 2]
    assert {path.name for path in (two_kinds / "cache").rglob("*") if path.is_file()} == {"lock-cpu"}


def test_what_kinds_share_is_in_the_checksum_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "random.py"
    shared.write_text("X = 1\n")
    monkeypatch.setattr(compiled_code, "SHARED", tmp_path)
    before = [compiled_code.checksum.__wrapped__(kind) for kind in ("collatz", "thread")]
    shared.write_text("X = 2\n")
    after = [compiled_code.checksum.__wrapped__(kind) for kind in ("collatz", "thread")]
    assert len({*before, *after}) == 4


def test_a_copy_of_the_sources_elsewhere_shares_the_compiled_code(
    two_kinds: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(two_kinds / "jobs", copy / "jobs")
    (copy / "cache").symlink_to(two_kinds / "cache")
    assert added(two_kinds) == ["2 0", "2 0"]
    assert added(copy) == ["2 1", "2 1"]


NAME = "odd-0123456789abcdef-01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty cache, and release its files after the test."""
    monkeypatch.setattr(compiled_code, "cache_root", lambda: tmp_path)
    held: dict[Path, int] = {}
    monkeypatch.setattr(compiled_code, "used_folders", held)
    yield tmp_path
    for descriptor in held.values():
        os.close(descriptor)


def compiled(cache: Path, name: str) -> Path:
    """Create a folder with compiled code that looks unused for two months."""
    (cache / name / "deep").mkdir(parents=True)
    for file in ("compiled", "lock", "kernel.nbi", "deep/kernel.nbc"):
        (cache / name / file).touch()
    look_old(cache / name)
    return cache / name


def test_what_nothing_has_used_for_a_month_is_removed_and_nothing_else(cache: Path) -> None:
    former = compiled(cache, "odd-fedcba9876543210")
    for file, seconds in (("odd-1111111111111111", 0), ("odd-2222222222222222-22222222", 3600)):
        place = compiled(cache, file)
        os.utime(place, (place.stat().st_atime, time.time() - seconds))
    others = [compiled(cache, name) for name in ("notes", "odd-short", "odd-0123456789abcdef-0123456")]
    (cache / "elsewhere").mkdir()
    (cache / "even-0123456789abcdef").symlink_to(others[0])
    os.utime(cache / "even-0123456789abcdef", (0, 0), follow_symlinks=False)
    (cache / "file-0123456789abcdef").touch()
    os.utime(cache / "file-0123456789abcdef", (0, 0))
    kept = sorted(path.name for path in cache.iterdir() if path not in (former, cache / NAME))
    compiled(cache, NAME)
    assert compiled_code.remove_unused() == [NAME, former.name]
    assert sorted(path.name for path in cache.iterdir()) == kept
    assert [len(list(each.rglob("*"))) for each in others] == [5, 5, 5]
    assert compiled_code.remove_unused() == []


def test_a_cache_that_is_not_there_or_cannot_be_written_is_no_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_code, "cache_root", lambda: cache / "none")
    assert compiled_code.remove_unused() == []
    (cache / "file").touch()
    compiled_code.use_folder(cache / "file" / NAME)
    assert not compiled_code.used_folders


USE = """
import sys
from pathlib import Path
from jobs.kinds import compiled_code
compiled_code.use_folder(Path(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""


def test_what_a_live_process_uses_is_kept_however_old_it_looks(cache: Path) -> None:
    folder = compiled(cache, NAME)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", USE, str(folder)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout and user.stdout.readline()
        assert folder.stat().st_mtime > time.time() - 3600
        look_old(folder)
        assert compiled_code.remove_unused() == [] and (folder / "compiled").exists()
        user.kill()
    assert compiled_code.remove_unused() == [NAME]


def test_a_folder_that_is_removed_while_a_process_begins_to_use_it_is_made_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lock, removals = compiled(cache, NAME), fcntl.flock, [compiled_code.remove_unused] * 2

    def late(descriptor: int, how: int) -> None:
        if how == fcntl.LOCK_SH and removals:
            removals.pop()()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    compiled_code.use_folder(folder)
    assert list(folder.iterdir()) == [], "it is a new one"
    look_old(folder)
    assert compiled_code.remove_unused() == []
    shutil.rmtree(folder)  # by hand
    compiled_code.use_folder(folder)
    look_old(folder)
    assert compiled_code.remove_unused() == [] and len(compiled_code.used_folders) == 1


def test_what_is_left_of_a_removal_is_not_used_and_removed_later(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = compiled(cache, NAME)

    def full(place: Path) -> None:
        raise OSError(f"{place} is busy")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", full)
        assert compiled_code.remove_unused() == []
    assert not folder.exists() and (cache / f"removed-{NAME}" / "kernel.nbi").exists()
    assert compiled_code.remove_unused() == [f"removed-{NAME}"]
