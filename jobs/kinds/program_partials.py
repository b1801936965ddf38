"""Partial results of programs: merges them and computes the result of the job.

A partial result consists of runs. A run covers consecutive units that exited with code 0 on one worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from statistics import median_low
from typing import Any

from jobs.kinds.contract import FinishedUnit
from jobs.models import Partial

_MS = 1000
#: Maximum number of paths in a partial result, and maximum length of each in characters.
MOST_NAMES, MAX_NAME = 3, 200


def describe_new_files(paths: Sequence[str]) -> Partial:
    """Return the field of a partial result about new files that were not kept. It is omitted if there are none."""
    names = sorted({path.encode(errors="replace").decode()[:MAX_NAME] for path in paths})[:MOST_NAMES]
    return {"new_files": {"count": len(paths), "names": names}} if paths else {}


def _merge_new_files(left: Partial, right: Partial) -> Partial:
    several = [partial["new_files"] for partial in (left, right) if "new_files" in partial]
    names = sorted({name for each in several for name in each["names"]})[:MOST_NAMES]
    return {"new_files": {"count": sum(each["count"] for each in several), "names": names}} if several else {}


def merge(left: Partial, right: Partial) -> Partial:
    """Merge two partial results: sort their runs by unit, join adjacent runs of the same worker, and add new files.

    Raises ValueError if a unit would count twice.
    """
    joined: list[dict[str, Any]] = []
    for run in sorted(chain(left["runs"], right["runs"]), key=lambda run: int(run["lo"])):
        end = _end(joined[-1]) if joined else 0
        if run["lo"] < end:
            raise ValueError(f"unit {run['lo']} would be counted twice")
        if joined and run["lo"] == end and run["worker"] == joined[-1]["worker"]:
            _append(joined[-1], run)
        else:
            joined.append({name: list(column) if isinstance(column, list) else column for name, column in run.items()})
    return {"runs": joined} | _merge_new_files(left, right)


def _end(run: dict[str, Any]) -> int:
    return int(run["lo"]) + len(run["ms"])


def _append(run: dict[str, Any], after: dict[str, Any]) -> None:
    if "values" in run or "values" in after:
        run.setdefault("values", [None] * len(run["ms"]))
        run["values"] += after.get("values") or [None] * len(after["ms"])
    run["ms"] += after["ms"]
    run["attempts"] += after["attempts"]


def finished_ranges(partial: Partial) -> Iterator[tuple[int, int]]:
    """Yield the units of a partial result as ranges (lo, hi), which contain the units lo..hi-1."""
    return ((run["lo"], _end(run)) for run in partial.get("runs", ()))


def finished_units(partial: Partial, lo: int, hi: int) -> Iterator[FinishedUnit]:
    """Yield the finished units among lo..hi-1 of a partial result, in order."""
    for run in partial.get("runs", ()):
        first, values = run["lo"], run.get("values")
        for unit in range(max(lo, first), min(hi, _end(run))):
            at = unit - first
            yield FinishedUnit(
                unit=unit,
                seconds=run["ms"][at] / _MS,
                attempts=run["attempts"][at],
                worker=run["worker"],
                value=values[at] if values else None,
            )


def result(partial: Partial) -> dict[str, Any]:
    """Return counts and durations of the units; durations are None if there are no units."""
    runs = partial.get("runs", [])
    ms = [each for run in runs for each in run["ms"]]
    workers = Counter[str]()
    for run in runs:
        workers[run["worker"]] += len(run["ms"])
    return {
        "units": len(ms),
        "seconds": {
            "sum": sum(ms) / _MS,
            "least": min(ms) / _MS if ms else None,
            "most": max(ms) / _MS if ms else None,
            "median": median_low(ms) / _MS if ms else None,
        },
        "attempts": sum(sum(run["attempts"]) for run in runs),
        "workers": dict(sorted(workers.items())),
        **{name: partial[name] for name in ("new_files",) if name in partial},
    }
