"""Validation of the partial result that a runner sends for the units of a program."""

from __future__ import annotations

from typing import Any

from jobs.kinds import program_texts as texts
from jobs.kinds.program_partials import MAX_NAME, MOST_NAMES
from jobs.models import Partial

#: Maximum duration of a unit in milliseconds, maximum number of attempts, and maximum size of a value in bytes of JSON.
_MAX_MS, _MAX_ATTEMPTS, _MAX_VALUE = 400 * 86_400_000, 1_000_000, 8 << 10
#: Maximum number of new files in a partial result.
_MAX_FILES = 1_000_000_000
_FIELDS = {"lo", "worker", "ms", "attempts"}


def complaint(partial: Partial, lo: int, hi: int, worker: str) -> str:
    """Return why a partial result does not cover the units lo..hi-1 on this worker, or an empty string."""
    runs = partial.get("runs")
    if set(partial) - {"new_files"} != {"runs"} or not isinstance(runs, list):
        return "must be an object with the fields runs and, optionally, new_files"
    if not _are_new_files(partial.get("new_files")):
        return f"new_files must have a count, and up to {MOST_NAMES} names of up to {MAX_NAME} characters"
    at = lo
    for run in runs:
        if not _is_run(run) or run["worker"] != worker:
            return f"each run must have lo, worker ({worker}), ms, attempts and optional values, with an entry per unit"
        if run["lo"] != at:
            return f"the next run must start at unit {at}; got {run['lo']}"
        at += len(run["ms"])
    return "" if at == hi else f"its runs must end before unit {hi}; they end before {at}"


def _are_new_files(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or set(value) != {"count", "names"} or type(value["count"]) is not int:
        return False
    names = value["names"]
    return (
        1 <= value["count"] <= _MAX_FILES
        and isinstance(names, list)
        and len(names) <= MOST_NAMES
        and all(isinstance(name, str) and len(name) <= MAX_NAME and texts.is_unicode(name) for name in names)
    )


def _is_run(run: Any) -> bool:
    if not isinstance(run, dict) or set(run) - {"values"} != _FIELDS or type(run["lo"]) is not int:
        return False
    ms, attempts, values = run["ms"], run["attempts"], run.get("values")
    if not isinstance(ms, list) or not ms or not _are_between(ms, 0, _MAX_MS):
        return False
    return _are_between(attempts, 1, _MAX_ATTEMPTS, len(ms)) and _are_values(values, len(ms))


def _are_between(column: Any, low: int, high: int, count: int | None = None) -> bool:
    if not isinstance(column, list) or (count is not None and len(column) != count):
        return False
    return all(type(one) is int and low <= one <= high for one in column)


def _are_values(values: Any, count: int) -> bool:
    if values is None:
        return True
    if not isinstance(values, list) or len(values) != count:
        return False
    return all(value is None or len(texts.as_json(value)) <= _MAX_VALUE for value in values)
