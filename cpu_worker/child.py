"""Child process of a CPU worker: computes leases and answers over a pipe.

Only child processes of a CPU worker load numba.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from jobs import errors
from jobs.kinds import code_sets, compiled_code, registry
from jobs.models import Device, Spec
from jobs.partial_reader import GatheredPartials
from jobs.worker import execution, known_answers

#: Indexes in the array shared with the parent: the stop flag, and the progress.
STOP, UPTO = 0, 1
#: Interval in seconds between checks that the parent process is alive.
_ORPHAN_SECONDS = 1.0


@dataclass(frozen=True)
class WarmUpResult:
    """Result of a warm-up, keyed by kind."""

    #: Seconds until each kind was ready, including the check of its known answers.
    seconds: dict[str, float] = field(default_factory=dict)
    #: Reasons why kernels must not be used, keyed by kind.
    wrong: dict[str, str] = field(default_factory=dict)
    #: Names of the folders of unused compiled code that the warm-up removed.
    removed: list[str] = field(default_factory=list)
    #: Reasons why compiled code is not stored for the next start, keyed by kind.
    unkept: dict[str, str] = field(default_factory=dict)


def main(pipe: Connection, shared: Any, parent: int, recompile: Collection[str] = ()) -> None:
    """Warm up the kernels, report which are ready, then answer requests until the pipe closes.

    `shared` is the array indexed by STOP and UPTO. `recompile` names the kinds whose stored code is wrong.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    answers: dict[str, Callable[..., Any]] = {"lease": compute_lease, "small": compute_small, "derive": _derive}
    try:
        pipe.send(warm(recompile))
        while True:
            what, *arguments = pipe.recv()
            pipe.send(answers[what](shared, *arguments))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def warm(recompile: Collection[str] = ()) -> WarmUpResult:
    """Compile every kernel or load it from the cache, check its known answers, and remove unused compiled code.

    A kind that another process is compiling is loaded last, so that several processes compile different kinds at the
    same time. Kinds in `recompile` are compiled even if the cache has them.
    """
    warmed = WarmUpResult()
    for wait in (False, True):
        for kind in registry.kinds_for_device(Device.CPU):
            if kind not in warmed.seconds:
                with code_sets.compile_once(kind, wait=wait, recompile=kind in recompile) as may_load:
                    if may_load:
                        _warm(kind, warmed)
    warmed.removed.extend(compiled_code.remove_unused())
    warmed.unkept.update(code_sets.unsaved_kinds())
    return warmed


def _warm(kind: str, warmed: WarmUpResult) -> None:
    started = time.perf_counter()
    try:
        registry.kernel(kind, Device.CPU).warm()
        known_answers.check(kind, Device.CPU)
    except known_answers.WrongAnswer as error:
        warmed.wrong[kind] = str(error)
    except Exception as error:  # any error disables only this kind; the worker still computes the others
        traceback.print_exc()
        warmed.wrong[kind] = f"{type(error).__name__}: {error}"
    warmed.seconds[kind] = round(time.perf_counter() - started, 3)


def _die_with(parent: int) -> None:
    """Exit after the parent process has exited. Otherwise, a killed worker would leave a computing child."""
    while os.getppid() == parent:
        time.sleep(_ORPHAN_SECONDS)
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
