"""CPU kernel of the kind `thread`."""

from __future__ import annotations

from jobs.kinds.thread.cpu_cells import run
from jobs.kinds.thread.definition import KIND

__all__ = ["run", "warm"]


def warm() -> None:
    """Compile all functions, or load them from the cache."""
    for scheduler in ("fifo", "work_stealing"):
        parameters = KIND.parameters(thread_count=2, max_depth=2, replicas=1, scheduler=scheduler, seed=1)
        run(KIND.plan(parameters).spec, 0, 1, lambda _: True)
