"""Validation of the partial result that a runner sends for the units of a program."""

from __future__ import annotations

from typing import Any

from jobs.kinds import program_texts as texts
from jobs.models import Partial

#: Maximum duration of a unit in milliseconds, maximum number of attempts, and maximum size of a value in bytes of JSON.
_MAX_MS, _MAX_ATTEMPTS, _MAX_VALUE = 400 * 86_400_000, 1_000_000, 8 << 10
_FIELDS = {"lo", "worker", "ms", "attempts"}


def complaint(partial: Partial, lo: int, hi: int, worker: str) -> str:
    """Return why a partial result does not cover the units lo..hi-1 on this worker, or an empty string."""
    runs = partial.get("runs")
    if set(partial) != {"runs"} or not isinstance(runs, list):
        return "must be an object whose only field is runs"
    at = lo
    for run in runs:
        if not _is_run(run) or run["worker"] != worker:
            return f"each run must have lo, worker ({worker}), ms, attempts and optional values, with an entry per unit"
        if run["lo"] != at:
            return f"the next run must start at unit {at}; got {run['lo']}"
        at += len(run["ms"])
    return "" if at == hi else f"its runs must end before unit {hi}; they end before {at}"


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
