"""Kernels that tests share are compiled again if they are wrong, as in workers. If they stay wrong, tests fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from tests import kernels
from tests.unit import toy_starts

#: Program that recompiles the named toy kinds and prints why kinds are wrong.
PREPARE = """
import json, sys
from jobs.kinds import registry
registry.kinds_for_device = lambda device: ("even", "odd")
from tests import kernels
print(json.dumps(kernels.main(sys.argv[1:])))
"""


def prepare(folder: Path, *anew: str) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": f"{kernels.TOP}:{folder}", "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", PREPARE, *anew]
    done = subprocess.run(command, cwd=kernels.TOP, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    wrong: dict[str, str] = json.loads(done.stdout)
    return wrong


def test_damaged_code_is_named_and_compiled_again(tmp_path: Path) -> None:
    toy_starts.write(tmp_path)
    assert prepare(tmp_path) == {}
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nbc")}
    for path in before:
        if "odd" in str(path):
            path.write_bytes(path.read_bytes()[:100])
    assert list(prepare(tmp_path)) == ["odd"]
    assert prepare(tmp_path, "odd") == {}
    assert prepare(tmp_path) == {}
    assert {path for path, changed in before.items() if path.exists() and path.stat().st_mtime_ns == changed} == {
        path for path in before if "even" in str(path)
    }


@pytest.mark.parametrize("still", [{}, {"odd": "wrong sum"}])
def test_a_run_of_tests_compiles_wrong_kernels_once_more(
    monkeypatch: pytest.MonkeyPatch, still: dict[str, str]
) -> None:
    calls: list[list[str]] = []

    def wrong_kernels(recompiled: Collection[str] = ()) -> dict[str, str]:
        calls.append(list(recompiled))
        return still if recompiled else {"odd": "wrong sum"}

    monkeypatch.setattr(kernels, "wrong_kernels", wrong_kernels)
    monkeypatch.delenv("PYTEST_XDIST_TESTRUNUID", raising=False)
    assert kernels.compile_all.__wrapped__() == still
    assert calls == [[], ["odd"]]


def test_one_process_of_a_run_compiles_for_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[str] = []

    def wrong_kernels(recompiled: Collection[str] = ()) -> dict[str, str]:
        calls.append(os.environ["PYTEST_XDIST_TESTRUNUID"])
        return {"odd": "wrong sum"} if recompiled else {"odd": "", "even": ""}

    monkeypatch.setattr(kernels, "wrong_kernels", wrong_kernels)
    monkeypatch.setattr(kernels, "LAST_RUN", tmp_path / "last-run.json")
    for run in ("first", "first", "second"):
        monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", run)
        assert kernels.compile_all.__wrapped__() == {"odd": "wrong sum"}
    assert calls == ["first", "first", "second", "second"], "two calls a run"


def test_all_kinds_are_wrong_if_their_process_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ENVIRONMENT", {**kernels.ENVIRONMENT, "PYTHONHOME": "/nonexistent"})
    wrong = kernels.wrong_kernels()
    assert {"collatz", "thread"} <= wrong.keys() and "ended with 1" in wrong["thread"]


def test_wrong_kernels_fail_tests_and_end_no_run(tmp_path: Path) -> None:
    (tmp_path / "wrong_kernels.py").write_text(
        "from tests import kernels\nkernels.compile_all = lambda: {'odd': 'wrong sum'}\n"
    )
    test = "tests/contract/test_every_kind.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "wrong_kernels", "-p", "no:cacheprovider", "-n", "1", test]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{kernels.path()}"}
    done = subprocess.run(command, cwd=kernels.TOP, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "INTERNALERROR" not in done.stdout + done.stderr
    assert "kernels are wrong even after they were compiled again: {'odd': 'wrong sum'}" in done.stdout
