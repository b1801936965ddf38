"""A lane's child process: it computes and answers over a pipe. The only place of a CPU worker with numba."""

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
from jobs.gathered import Gathered
from jobs.kinds import code_sets, compiled_code, registry
from jobs.models import Device, Spec
from jobs.worker import execution, known_answers

#: Slots of the array shared with the parent.
STOP, UPTO = 0, 1
#: A tick costs a system call only this often.
_ORPHAN_SECONDS = 1.0


@dataclass(frozen=True)
class WarmUpResult:
    """Outcome of a warm-up, by kind."""

    #: Seconds until it was ready, checking included.
    seconds: dict[str, float] = field(default_factory=dict)
    #: Why it must not be used.
    wrong: dict[str, str] = field(default_factory=dict)
    #: Folders of compiled code that it removed, since nothing had used them for long.
    removed: list[str] = field(default_factory=list)
    #: Why compiled code is not stored for the next start.
    unkept: dict[str, str] = field(default_factory=dict)


def main(pipe: Connection, shared: Any, parent: int, recompile: Collection[str] = ()) -> None:
    """Warm the kernels, say which are ready, then answer requests until the pipe closes. `shared`: see STOP and UPTO;
    `recompile`: kinds whose compiled code is wrong.
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
    """Compile every kernel or load it from the cache, and check it against what is known; remove what nothing uses.

    Kinds that another process is compiling come last, so that several compile different kinds at the same time. Kinds
    in `recompile` are compiled even if the cache has them.
    """
    warmed = WarmUpResult()
    for wait in (False, True):
        for kind in registry.computed_on(Device.CPU):
            if kind not in warmed.seconds:
                with code_sets.compile_once(kind, wait=wait, recompile=kind in recompile) as may_load:
                    if may_load:
                        _warm(kind, warmed)
    warmed.removed.extend(compiled_code.remove_unused())
    warmed.unkept.update(code_sets.unkept())
    return warmed


def _warm(kind: str, warmed: WarmUpResult) -> None:
    started = time.perf_counter()
    try:
        registry.kernel(kind, Device.CPU).warm()
        known_answers.check(kind, Device.CPU)
    except known_answers.WrongAnswer as error:
        warmed.wrong[kind] = str(error)
    except Exception as error:  # whatever it is, other kinds have work too
        traceback.print_exc()
        warmed.wrong[kind] = f"{type(error).__name__}: {error}"
    warmed.seconds[kind] = round(time.perf_counter() - started, 3)


def _die_with(parent: int) -> None:
    """End this process when its parent is gone: a killed one must not leave its children computing."""
    while os.getppid() == parent:
        time.sleep(_ORPHAN_SECONDS)
    os._exit(1)


def compute_lease(shared: Any, kind: str, spec: Spec, lo: int, hi: int, long_seconds: float) -> Any:
    """Compute a lease: (upto, encoded partial, seconds) or the KernelFailed."""
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
    """Compute small jobs: each is a Whole or the KernelFailed. UPTO is the place of the one that is computed."""
    answers = []
    for shared[UPTO], (kind, spec, total) in enumerate(jobs):
        answers.append(_compute_whole(kind, spec, total))
    return answers


def _compute_whole(kind: str, spec: Spec, total: int) -> Any:
    try:
        return execution.whole(kind, Device.CPU, spec, total)
    except errors.KernelFailed as failure:
        return failure


def _derive(shared: Any, kind: str, spec: Spec, gathered: Gathered) -> Any:
    """Derive a job's result, or return the KernelFailed."""
    try:
        return execution.derive(kind, spec, gathered)
    except errors.KernelFailed as failure:
        return failure
