"""Child process of a CPU worker: computes leases and answers over a pipe.

Only child processes of a CPU worker load numba.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from jobs import errors
from jobs.kinds import code_sets, compiled_code, registry
from jobs.models import Device, Spec
from jobs.partial_reader import GatheredPartials
from jobs.worker import execution, known_answers

#: Indexes in the array shared with the parent: the stop flag, and the progress.
STOP, UPTO = 0, 1
#: Kinds whose functions and tables this process has loaded.
warm_kinds: set[str] = set()


@dataclass(frozen=True, kw_only=True)
class Started:
    """First message of a child, which can now answer requests."""

    #: Names of the folders of compiled code that the child removed because nothing had used them for a month.
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Load:
    """Options for loading a kernel."""

    #: Whether the child may compile the kernel, which can take a minute.
    may_compile: bool = False
    #: Whether the child may wait while another process is compiling the kernel.
    may_wait: bool = True
    #: Whether the child must compile the kernel even if the cache contains it.
    recompile: bool = False
    #: Number of earlier compilations of the kernel by this worker.
    compilations: int = 0


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Result of loading or compiling the kernel of one kind."""

    #: Seconds until the kernel was ready, including the known-answer check.
    seconds: float = 0.0
    #: Reason why the kernel must not be used, or empty.
    wrong: str = ""
    #: Reason why compiled code is not stored for other processes, or empty.
    unkept: str = ""


def main(pipe: Connection, shared: Any) -> None:
    """Report that the child has started, then answer requests until the pipe closes.

    `shared` is the array indexed by STOP and UPTO.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    answers: dict[str, Callable[..., Any]] = {
        "load": load,
        "lease": compute_lease,
        "small": compute_small,
        "derive": _derive,
    }
    try:
        gc.disable()  # Importing numba creates many objects and no garbage.
        pipe.send(Started(removed=remove_unused()))
        gc.enable()
        while True:
            what, *arguments = pipe.recv()
            pipe.send(answers[what](shared, *arguments))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def remove_unused() -> tuple[str, ...]:
    """Remove compiled code that was unused for a month, except this version's code. Return the folder names."""
    code_sets.configure_numba()
    for kind in registry.kinds_for_device(Device.CPU):
        compiled_code.use_folder(compiled_code.folder(kind))
    return tuple(compiled_code.remove_unused())


def load(shared: Any, kind: str, how: Load) -> Loaded | None:
    """Load the kernel of a kind from the cache, or compile it, and check its known answers.

    Return None if `how` forbids compiling the kernel, or waiting for another process that is compiling it.
    """
    if not how.may_compile and not code_sets.is_published(kind):
        return None
    started = time.perf_counter()
    with code_sets.compile_once(kind, wait=how.may_wait, recompile=how.recompile) as may_load:
        if not may_load:
            return None
        with _collecting_garbage(how.may_compile):
            wrong = _find_error(kind)
    unkept = code_sets.unsaved_kinds().get(kind, "")
    return Loaded(seconds=round(time.perf_counter() - started, 3), wrong=wrong, unkept=unkept)


@contextmanager
def _collecting_garbage(is_collecting: bool) -> Iterator[None]:
    """Disable garbage collection unless `is_collecting`. Compiling creates garbage, and loading code does not."""
    if not is_collecting:
        gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _find_error(kind: str) -> str:
    """Compile or load a kernel, and check its known answers. Return the error, or an empty string."""
    try:
        warm(kind)
        known_answers.check(kind, Device.CPU)
    except known_answers.WrongAnswer as error:
        return str(error)
    except Exception as error:  # Any error disables only this kind; the worker still computes the others.
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def warm(kind: str) -> None:
    """Load or compile all functions and tables of a kind, unless the process from which this one was forked did so."""
    if kind not in warm_kinds:
        registry.kernel(kind, Device.CPU).warm()
        warm_kinds.add(kind)


def _die_with_parent() -> None:
    """Exit after the parent process has exited. Otherwise, a killed worker would leave a computing child."""
    parent = multiprocessing.parent_process()
    if parent:
        wait([parent.sentinel])
        os._exit(1)


def compute_lease(shared: Any, kind: str, spec: Spec, lo: int, hi: int, long_seconds: float) -> Any:
    """Compute a lease and return (upto, encoded partial result, seconds), or the KernelFailed error."""
    deadline = time.monotonic() + long_seconds

    def tick(upto: int) -> bool:
        shared[UPTO] = upto
        return not shared[STOP] and (upto == lo or time.monotonic() < deadline)

    try:
        done = execution.compute(kind, Device.CPU, spec, lo, hi, tick)
        return done.upto, execution.encoded(kind, Device.CPU, done.partial), done.seconds
    except errors.KernelFailed as failure:
        return failure


def compute_small(shared: Any, jobs: list[tuple[str, Spec, int]]) -> list[Any]:
    """Compute small jobs, and return a result or a KernelFailed error for each job.

    UPTO is the index of the current job.
    """
    answers = []
    for shared[UPTO], (kind, spec, total) in enumerate(jobs):
        answers.append(_compute_whole(kind, spec, total))
    return answers


def _compute_whole(kind: str, spec: Spec, total: int) -> Any:
    try:
        return execution.compute_small_job(kind, Device.CPU, spec, total)
    except errors.KernelFailed as failure:
        return failure


def _derive(shared: Any, kind: str, spec: Spec, gathered: GatheredPartials) -> Any:
    """Merge the partial results of a job and derive its result, or return the KernelFailed error."""
    try:
        return execution.derive(kind, spec, gathered)
    except errors.KernelFailed as failure:
        return failure
