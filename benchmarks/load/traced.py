"""A part of the cluster that notes when a job passes: `python -m benchmarks.load.traced cpu_worker`, for `timeline`.

What is noted goes to the file TRACE_FILE, a line each: nanoseconds of the machine's monotonic clock, and a step.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import time
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any, NamedTuple


class Step(NamedTuple):
    """A method that a job passes, and what is noted before and after it; empty: nothing."""

    method: str
    before: str
    after: str = ""


#: By part; a part's child processes note those of `child`.
STEPS = {
    "coordinator": (
        Step("coordinator.server.protocol:BoundedProtocol.data_received", "coordinator reads the request"),
        Step("coordinator.cluster:Cluster.submit_one", "the body is read"),
        Step("jobs.store.work.jobs:Jobs.submit_by", "SUBMIT is asked", "SUBMIT is answered"),
        Step("coordinator.events.ends:Ends.take", "the loop hears the end"),
        Step("uvicorn.protocols.http.httptools_impl:RequestResponseCycle.send", "the answer is written"),
    ),
    "cpu_worker": (
        Step("jobs.store.work.slots:Slots.next", "a worker has the bell, asks NEXT", "NEXT is answered"),
        Step("jobs.store.work.leases:Leases.done1_all", "DONE1 is asked", "DONE1 is answered"),
    ),
    "child": (Step("cpu_worker.child:compute_small", "the lane's process has it", "it is computed"),),
}


def note(step: str) -> None:
    """Append a step to the trace."""
    os.write(_file(), f"{time.monotonic_ns()} {step}\n".encode())


@functools.cache
def _file() -> int:
    return os.open(os.environ["TRACE_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def follow(part: str) -> None:
    """Have a part's steps noted from now on. AttributeError or ImportError for one that is no more."""
    for step in STEPS[part]:
        place, _, name = step.method.rpartition("." if "." in step.method.partition(":")[2] else ":")
        owner = resolve_name(place) if ":" in place else importlib.import_module(place)
        setattr(owner, name, _noting(getattr(owner, name), step))


def _noting(method: Callable[..., Any], step: Step) -> Callable[..., Any]:
    @functools.wraps(method)
    async def waiting(*given: Any, **more: Any) -> Any:
        note(step.before)
        answer = await method(*given, **more)
        if step.after:
            note(step.after)
        return answer

    @functools.wraps(method)
    def noting(*given: Any, **more: Any) -> Any:
        note(step.before)
        answer = method(*given, **more)
        if step.after:
            note(step.after)
        return answer

    return waiting if inspect.iscoroutinefunction(method) else noting


if __name__ == "__mp_main__":
    follow("child")
if __name__ == "__main__":
    follow(sys.argv[1])
    sys.exit(importlib.import_module(f"{sys.argv[1]}.__main__").main())
