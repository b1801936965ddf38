"""The thread kind on a CPU core."""

from __future__ import annotations

from jobs.kinds.thread import definition
from jobs.kinds.thread.cpu_cells import run

__all__ = ["run", "warm"]


def warm() -> None:
    """Compile everything, or load it from the cache."""
    for scheduler in ("fifo", "work_stealing"):
        parameters = definition.Parameters(thread_count=2, max_depth=2, replicas=1, scheduler=scheduler, seed=1)
        run(definition.plan(parameters).spec, 0, 1, lambda _: True)
