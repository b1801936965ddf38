"""GPU kernel of the kind `thread`. It supports all schedulers; CPUs simulate traces and long replicas.

A replica that exceeds the memory or the steps reserved on the GPU is simulated on this worker's CPU instead, with the
same result.
"""

from __future__ import annotations

from typing import Any

from jobs.kinds import gpu
from jobs.kinds.contract import Tick
from jobs.kinds.thread import cpu_cells
from jobs.kinds.thread.cpu_reduction import MOST_ROWS
from jobs.kinds.thread.definition import KIND
from jobs.kinds.thread.gpu_simulation import SOURCES, GpuCell
from jobs.kinds.thread.partials import merge
from jobs.models import Partial, Spec

__all__ = ["SOURCES", "run", "warm"]

#: Number of replicas in the first launch for a simulated machine that has not been measured yet.
_FIRST = 1024
#: Number of threads that a launch simulates in LAUNCH_SECONDS, as measured, keyed by (scheduler, cores).
measured_cells: dict[tuple[str, int], int] = {}


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Simulate units lo..hi-1 and return (upto, partial result of units lo..upto-1).

    Calls `tick` between launches. `upto` is `hi` unless `tick` returned False.
    """
    partial: Partial = {}
    unit, cell = lo, None
    while unit < hi:
        number, first = divmod(unit, spec["replicas"])
        if cell is None or cell.cell != number:
            cell = GpuCell(spec, number)
            batch = _batch(spec, cell)
        part: list[Partial] = []
        unit += batch.take(min(hi - unit, spec["replicas"] - first), _launch(spec, cell, first, part))
        measured_cells[cell.scheduler, cell.cores] = batch.size * spec["expected_threads"]
        partial = merge(partial, part[0])
        if unit < hi and not tick(unit):
            break
    return unit, partial


def _batch(spec: Spec, cell: GpuCell) -> gpu.Batch:
    """Return the launch size for one simulated machine (cell)."""
    most = min(spec["batch_size"] or MOST_ROWS, MOST_ROWS)
    threads = measured_cells.get((cell.scheduler, cell.cores), _FIRST * spec["expected_threads"])
    first = threads // spec["expected_threads"]
    return gpu.Batch(first=max(1, min(first, most)), most=most, wave=min(cell.wave, most))


def _launch(spec: Spec, cell: GpuCell, first: int, part: list[Partial]) -> Any:
    """Return a function that simulates replicas in one launch and appends their partial result to `part`."""

    def launch(count: int) -> int:
        computed, small = cell.compute(first, count)
        partial: Partial = {"cells": {str(cell.cell): computed}} if computed["replicas"] else {}
        for replica in small:
            unit = cell.cell * spec["replicas"] + replica
            partial = merge(partial, cpu_cells.run(spec, unit, unit + 1, lambda _: True)[1])
        part.append(partial)
        return count

    return launch


def warm() -> None:
    """Compile all GPU kernels, and the CPU code for replicas that the GPU rejects."""
    for scheduler, join in (("fifo", "none"), ("fifo", "block"), ("round_robin", "none"), ("work_stealing", "none")):
        model = {"thread_count": 2, "max_depth": 2, "replicas": 1, "seed": 1, "scheduler": scheduler, "join": join}
        spec = KIND.plan(KIND.parameters.model_validate(model)).spec
        run(spec, 0, 1, lambda _: True)
        cpu_cells.run(spec, 0, 1, lambda _: True)
