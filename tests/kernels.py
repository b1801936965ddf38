"""Compiled kernels that all tests share, so that a run compiles each at most once: `python -m tests.kernels`."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jobs.kinds import code_sets, compiled_code, registry
from jobs.models import Device
from jobs.worker import known_answers

TOP = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("NUMBA_CACHE_DIR") or compiled_code.CACHE_FOLDER)


def path(top: Path = TOP) -> str:
    """Return the PYTHONPATH of workers of tests: the kinds that ship, those of the tests, and what was there before."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(top / "tests" / "kinds"), str(top), *([inherited] if inherited else [])])


#: Environment of workers of tests.
ENVIRONMENT = {"PYTHONPATH": path(), "NUMBA_CACHE_DIR": str(CACHE)}
#: Folders of tests that start workers or compute with kernels.
FOLDERS = {"contract", "integration", "hostile", "chaos", "browser"}
#: Name of a file in sets that also have the functions that only tests call.
_COMPLETE = "complete-for-tests"
#: File with the answer of `compile_all` in the last run with several processes, by the run's ID.
LAST_RUN = CACHE / "last-run.json"


@cache
def compile_all() -> dict[str, str]:
    """Compile kernels, or load and check them. Compile wrong ones again, as workers do.

    Return the reasons by kind if kernels are still wrong. In a run with several processes, one of them does the work.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if not run:
        return _compile_all()
    with _locked("lock-run"):
        known = json.loads(LAST_RUN.read_text()) if LAST_RUN.exists() else {}
        if run not in known:
            known = {run: _compile_all()}
            LAST_RUN.write_text(json.dumps(known))
    wrong: dict[str, str] = known[run]
    return wrong


def _compile_all() -> dict[str, str]:
    wrong = wrong_kernels()
    return wrong_kernels(wrong) if wrong else {}


def wrong_kernels(recompile: Collection[str] = ()) -> dict[str, str]:
    """Compile or load kernels in a new process. Return why kinds are wrong. If the process fails, all are."""
    command = [sys.executable, "-m", "tests.kernels", *recompile]
    done = subprocess.run(command, cwd=TOP, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return dict.fromkeys(registry.kinds_for_device(Device.CPU), f"{' '.join(command)} ended with {done.returncode}")
    wrong: dict[str, str] = json.loads(done.stdout)
    return wrong


def main(recompile: Collection[str]) -> dict[str, str]:
    """Compile or load the kernels of all kinds. Recompile those in `recompile`. Return why kinds are wrong."""
    wrong = {}
    for kind in registry.kinds_for_device(Device.CPU):
        try:
            _prepare(kind, kind in recompile)
        except Exception as error:  # whatever it is, it may be gone after the next compilation
            wrong[kind] = f"{type(error).__name__}: {error}"
    return wrong


def _prepare(kind: str, recompile: bool) -> None:
    """Compile or load a kind's kernel and check its answers. Sets of workers lack functions that tests need."""
    with contextlib.ExitStack() as stack:
        if recompile or not _is_complete(kind):
            stack.enter_context(_locked())
        lacks = recompile or not _is_complete(kind)
        stack.enter_context(code_sets.compile_once(kind, recompile=lacks))
        registry.kernel(kind, Device.CPU).warm()
        known_answers.check(kind, Device.CPU)
        if lacks:
            _compile_the_rest(kind)


def _is_complete(kind: str) -> bool:
    return any(compiled_code.folder(kind).glob(f"{Device.CPU}-*/{_COMPLETE}"))


@contextlib.contextmanager
def _locked(name: str = "lock-tests") -> Iterator[None]:
    """Compile in one process at a time: each would drop the set that another has just completed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / name).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile_the_rest(kind: str) -> None:
    """Compile functions that only tests call with the kernel: variants for other CPUs, and kernels for GPUs."""
    from jobs.kinds import gpu
    from tests.gpu.host_device import MISSING, HostDevice

    if kind == "collatz":
        _warm_every_form()
    if Device.GPU in registry.devices(kind) and not MISSING:
        gpu.set_device(HostDevice())
        registry.kernel(kind, Device.GPU).warm()
    with code_sets.code_set(kind).writing() as may_write:
        if may_write:
            (code_sets.code_set(kind).path / _COMPLETE).touch()


def _warm_every_form() -> None:
    modules: Any = (
        importlib.import_module(f"jobs.kinds.collatz.{name}") for name in ("records", "statistics", "verify")
    )
    records, statistics, verify = modules
    usual = statistics.tails, verify.sweeps
    for tails in statistics.all_tails():
        statistics.tails = records.tails = lambda tails=tails: tails
        statistics.warm(), records.warm()
    for sweeps in verify.all_sweeps():
        verify.sweeps = lambda sweeps=sweeps: sweeps
        verify.warm()
    statistics.tails = records.tails = usual[0]
    verify.sweeps = usual[1]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
