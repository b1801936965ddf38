"""Starts of CPU workers' children on two toy kinds: `python -m tests.unit.toy_starts`, by `test_code_sets.py`.

The kinds have the same names and argument types but different functions, so their symbols would collide. Each
start is a fork of one process that has loaded numba: a new process would take seconds.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy
from numba import njit
from numba.core import config as numba_config

from cpu_worker import child
from jobs.kinds import registry
from jobs.models import Device

#: Code that both kinds share, and the numbers in which they differ: each function adds one of them.
ADDERS = """
import numpy
from numba import njit

def adder_of(added):
    @njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
    def adder(number):
        return added if number < 2 else adder(number // 2) + adder(number // 3) + number
    return adder
"""
KERNEL = """
import numpy as np
import numpy
from numba import njit
from jobs.kinds import table_cache
from jobs.kinds.adders import adder_of

add_first, add_second = adder_of({first}), adder_of({second})

def _compiled(is_second):
    @njit(cache=True)
    def chunk(count):
        total = 0
        for number in range(np.int64(count)):
            total += add_second(number) if is_second else add_first(number)
        return total
    return chunk

first, second = _compiled(False), _compiled(True)

def table():
    tables = table_cache.load_or_compute("{kind}", "table", lambda: {{"numbers": np.array([{first}, {second}])}})
    return tables["numbers"]

def warm():
    first(1), second(1), table()

def run(spec, lo, hi, tick):
    return hi, {{"second": second(hi), "first": first(hi), "table": table().tolist()}}  # not in the order of warm()
"""
GPU_KERNEL = """
from jobs.kinds.{kind}.cpu_kernel import first, run, second, warm
"""
DEFINITION = """
from pydantic import BaseModel

from jobs.kinds.contract import Kind

class Adder(Kind):
    model_version = 1
    summary = "Adds."
    example = {}
    parameters = BaseModel

    def plan(self, parameters): ...
    def merge(self, left, right): ...
    def result(self, spec, partial): ...

KIND = Adder()
"""
ADDED = {"even": (2, 4), "odd": (1, 3)}
COUNT = 50


def write(folder: Path) -> None:
    """Write both kinds into a folder for PYTHONPATH."""
    for kind, (first, second) in ADDED.items():
        own = folder / "jobs" / "kinds" / kind
        own.mkdir(parents=True)
        for package in (own.parents[1], own.parent, own):
            (package / "__init__.py").touch()
        (own / "definition.py").write_text(DEFINITION)
        (own / "cpu_kernel.py").write_text(KERNEL.format(kind=kind, first=first, second=second))
        (own / "gpu_kernel.py").write_text(GPU_KERNEL.format(kind=kind))
    (folder / "jobs" / "kinds" / "adders.py").write_text(ADDERS)


def expected(*kinds: str) -> dict[str, Any]:
    """Return the answers of the kinds, computed without numba."""

    def added(number: int, least: int) -> int:
        return least if number < 2 else added(number // 2, least) + added(number // 3, least) + number

    def answer(first: int, second: int) -> dict[str, Any]:
        sums = [sum(added(number, least) for number in range(COUNT)) for least in (first, second)]
        return {"first": sums[0], "second": sums[1], "table": [first, second]}

    return {kind: answer(*ADDED[kind]) for kind in kinds}


class _Failure:
    """Audit hook that fails at the `at`-th file or folder that the process completes in the cache by renaming."""

    def __init__(self, at: int, kill: bool) -> None:
        self.left, self.kill = at, kill

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename":
            self.left -= 1
            if self.left == 0 and self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.left <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")


class _ReadOnly:
    """Audit hook that fails like a read-only file system. Permissions would not stop root."""

    def __init__(self, cache: str) -> None:
        self.cache = cache

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        writes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.utime") or (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if writes and str(arguments[0]).startswith(self.cache) and not Path(arguments[0]).is_dir():
            raise OSError(errno.EROFS, "Read-only file system")


def _start(
    kinds: list[str],
    cache: str,
    *,
    kill_at: int = 0,
    full_at: int = 0,
    most_bytes: int = 0,
    is_read_only: bool = False,
    types: tuple[str, ...] = ("int64",),
    warms: bool = True,
    imports_first: bool = False,
    device: str = "cpu",
) -> dict[str, Any]:
    """Warm these kinds in this process, in this order, and have them compute with arguments of these numpy types."""
    numba_config.CACHE_DIR = cache
    registry.kinds_for_device = lambda device: tuple(kinds)
    if most_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
    if kill_at or full_at:
        sys.addaudithook(_Failure(kill_at or full_at, kill=bool(kill_at)))
    if is_read_only:
        sys.addaudithook(_ReadOnly(cache))
    if imports_first:
        for kind in kinds:
            registry.kernel(kind, Device.CPU)
    if device == "gpu":
        for kind in kinds:
            registry.warm(kind, Device.GPU)
    loaded = _load_all(kinds) if warms and device == "cpu" else {}
    kernels: Any = {kind: registry.kernel(kind, Device(device)) for kind in kinds}
    for each in types:
        count = getattr(numpy, each)(COUNT)
        answers = {kind: kernel.run({}, 0, count, lambda _: True)[1] for kind, kernel in kernels.items()}
    functions = [function for kernel in kernels.values() for function in (kernel.first, kernel.second)]
    return {
        "answers": answers,
        "wrong": {kind: one.wrong for kind, one in loaded.items() if one.wrong},
        "unkept": {kind: one.unkept for kind, one in loaded.items() if one.unkept},
        "hits": sum(sum(function.stats.cache_hits.values()) for function in functions),
    }


def _load_all(kinds: list[str]) -> dict[str, child.Loaded]:
    """Load or compile every kind. A kind that another process is compiling is loaded last."""
    loaded: dict[str, child.Loaded] = {}
    for may_wait in (False, True):
        for kind in kinds:
            if kind not in loaded and (one := child.load(None, kind, child.Load(may_compile=True, may_wait=may_wait))):
                loaded[kind] = one
    return loaded


def _forked(step: dict[str, Any]) -> tuple[int, int]:
    """Start in a fork; return the descriptor of its output, and its process id."""
    reading, writing = os.pipe()
    if pid := os.fork():
        os.close(writing)
        return reading, pid
    code = 1
    try:
        os.write(writing, json.dumps(_start(**step)).encode())
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def _answer(reading: int, pid: int) -> Any:
    """Return the output of a fork; None if it was killed."""
    with os.fdopen(reading) as stream:
        text = stream.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise ChildProcessError(f"a start ended with {code}")
    return json.loads(text) if text else None


def abs_of(number: int) -> int:
    return abs(number)


def _done(steps: list[list[dict[str, Any]]]) -> list[list[Any]] | None:
    """Do the steps, each of which is a list of starts at the same time; return their answers, or None if one failed."""
    try:
        return [[_answer(*each) for each in [_forked(start) for start in step]] for step in steps]
    except ChildProcessError:
        traceback.print_exc()
        return None


def main() -> None:
    """Do the steps of each line of stdin, and print the answers in a line of stdout."""
    sys.dont_write_bytecode = True  # otherwise Python completes files, too
    njit("int64(int64)")(abs_of)  # prepares numba for all forks
    for line in sys.stdin:
        print(json.dumps(_done(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
