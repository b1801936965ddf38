"""Kinds are found, kernels are loaded one at a time, compiled code never outlives its sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import errors, kinds
from jobs.kinds import registry
from jobs.models import Device

ROOT = Path(__file__).resolve().parents[2]
SHOW = (
    "from jobs.kinds import registry; registry.keep_compiled_code_apart(); import numba; print(numba.config.CACHE_DIR)"
)


def cache_folder(extra: Path, base: Path) -> str:
    path = f"{extra}:{ROOT}"
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(base)}
    return subprocess.run(
        [sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_a_changed_source_of_any_kind_gets_a_cache_of_its_own(tmp_path: Path) -> None:
    kind = tmp_path / "jobs" / "kinds" / "extra"
    kind.mkdir(parents=True)
    for package in (tmp_path / "jobs", tmp_path / "jobs" / "kinds", kind):
        (package / "__init__.py").touch()
    (kind / "deep.py").write_text("X = 1\n")
    first, again = (cache_folder(tmp_path, tmp_path / "cache") for _ in range(2))
    (kind / "deep.py").write_text("X = 2\n")
    assert first == again != cache_folder(tmp_path, tmp_path / "cache")
    assert first.startswith(str(tmp_path / "cache"))


def test_a_device_without_a_kernel_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(ROOT / "tests" / "kinds" / "jobs" / "kinds")])
    registry.names.cache_clear()
    with pytest.raises(errors.NoKernel, match="kind faulty has no kernel for gpu"):
        registry.kernel("faulty", Device.GPU)
    registry.names.cache_clear()


COMPILE = """
import sys, time
from jobs.kinds import registry
with registry.one_compiles():
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
    """When it went in and out."""
    words = process.communicate(timeout=60)[0].split()
    return float(words[1]), float(words[3])


def test_one_process_compiles_and_the_others_then_load_at_once(tmp_path: Path) -> None:
    died = compiling(tmp_path, "dies")
    assert "out" not in died.communicate(timeout=60)[0]
    first, second = sorted(spent(process) for process in [compiling(tmp_path, "0.7") for _ in range(2)])
    assert first[1] <= second[0]
    third, fourth = sorted(spent(process) for process in [compiling(tmp_path, "1.5") for _ in range(2)])
    assert fourth[0] < third[1]
