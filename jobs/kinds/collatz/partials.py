"""Merges partial results of Collatz jobs, and derives the results of the jobs from them.

A partial result of statistics is `{"histogram": [[delay, count], ...], "delay": [[n, value], ...], "path": [[n, value],
...]}`: delays ascending without zero counts, records ascending in n. Everything else of the result follows from these
three. With columns there are also `"columns": [[column, count, sum, min, max, argmax], ...]` and `"density": [[column,
histogram], ...]`, ascending, for the columns that the partial result touches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from jobs.kinds.collatz.statistics_columns import Layout
from jobs.models import Partial, Spec
from threads_protocol.numbers import exact

#: Candidate for a record, as [n, value].
Record = list[int]


def running_maxima(candidates: Iterable[Record]) -> list[Record]:
    """Return the candidates whose value exceeds the value of every smaller n, ascending in n.

    Each dropped candidate is dominated by a kept one, so `running(running(a) + running(b)) == running(a + b)` for any
    order and any gaps. Merging is therefore associative, commutative and idempotent, and ranges need not be adjacent.
    """
    kept: list[Record] = []
    for n, value in sorted(candidates, key=lambda record: (record[0], -record[1])):
        if not kept or value > kept[-1][1]:
            kept.append([n, value])
    return kept


def sorted_pairs(histogram: Counter[int]) -> list[list[int]]:
    return [list(pair) for pair in sorted(histogram.items())]


def _add_histograms(left: list[list[int]], right: list[list[int]]) -> list[list[int]]:
    """Add two histograms."""
    counts: Counter[int] = Counter()
    for delay, count in (*left, *right):
        counts[delay] += count
    return sorted_pairs(counts)


def column_row(column: int, histogram: Counter[int], last: Record) -> list[int]:
    """Return [column, count, sum, minimum delay, maximum delay, first n with the maximum] for one column."""
    total = sum(delay * count for delay, count in histogram.items())
    return [column, histogram.total(), total, min(histogram), last[1], last[0]]


def _merge_columns(left: list[int], right: list[int]) -> list[int]:
    most, where = max((left[4], -left[5]), (right[4], -right[5]))
    return [left[0], left[1] + right[1], left[2] + right[2], min(left[3], right[3]), most, -where]


def _merge_by_column(left: list[Any], right: list[Any], join: Callable[[Any, Any], Any]) -> list[Any]:
    """Merge two lists of rows by column number; `join` combines two rows of the same column."""
    rows = {row[0]: row for row in left}
    for row in right:
        rows[row[0]] = join(rows[row[0]], row) if row[0] in rows else row
    return [rows[column] for column in sorted(rows)]


def merge(left: Partial, right: Partial) -> Partial:
    """Merge the partial statistics of two ranges without changing the arguments."""
    merged = {
        "histogram": _add_histograms(left["histogram"], right["histogram"]),
        "delay": running_maxima(left["delay"] + right["delay"]),
        "path": running_maxima(left["path"] + right["path"]),
    }
    if "columns" in left:
        merged["columns"] = _merge_by_column(left["columns"], right["columns"], _merge_columns)
    if "density" in left:
        join = lambda one, other: [one[0], _add_histograms(one[1], other[1])]  # noqa: E731
        merged["density"] = _merge_by_column(left["density"], right["density"], join)
    return merged


def _records(records: list[Record]) -> list[dict[str, Any]]:
    return [{"n": exact(n), "value": exact(value)} for n, value in records]


def columns_result(columns: Layout, start: int, rows: list[list[int]]) -> dict[str, list[Any]]:
    """Return the columns of a plot as one list per field. Each mean is rounded once from exact integers."""
    return {
        "start": [exact(max(start, columns.base + row[0] * columns.width)) for row in rows],
        "count": [exact(row[1]) for row in rows],
        "min": [row[3] for row in rows],
        "mean": [row[2] / row[1] for row in rows],
        "max": [row[4] for row in rows],
        "argmax": [exact(row[5]) for row in rows],
        "sum": [exact(row[2]) for row in rows],
    }


def result(partial: Partial) -> dict[str, Any]:
    """Return the result of a statistics job. The mean and the variance are rounded once from exact integers."""
    histogram = partial["histogram"]
    count = sum(times for _, times in histogram)
    total = sum(delay * times for delay, times in histogram)
    squares = sum(delay * delay * times for delay, times in histogram)
    delays, paths = _records(partial["delay"]), _records(partial["path"])
    return {
        "count": exact(count),
        "delay": {
            "sum": exact(total),
            "sumsq": exact(squares),
            "mean": total / count,
            "variance": (count * squares - total * total) / (count * count),
            "max": delays[-1],
            "histogram": [[delay, exact(times)] for delay, times in histogram],
        },
        "peak": {"max": paths[-1]},
        "records": {"delay": delays, "path": paths},
    }


#: Maximum number of unresolved numbers that a partial result lists.
NAMED = 100


def smallest_numbers(numbers: Iterable[int]) -> list[int]:
    """Return up to NAMED of the smallest numbers, in ascending order.

    The result does not depend on the order in which partial results are merged.
    """
    return sorted(set(numbers))[:NAMED]


def merge_verified(left: Partial, right: Partial) -> Partial:
    """Merge two partial results of verification without changing the arguments."""
    summed = {key: left[key] + right[key] for key in ("count", "candidates", "blocks", "checksum")}
    unresolved = smallest_numbers(left["unresolved"] + right["unresolved"])
    return summed | {"bits": max(left["bits"], right["bits"]), "unresolved": unresolved}


def merge_records(left: Partial, right: Partial) -> Partial:
    """Merge the record candidates of two ranges. Drop each candidate whose value a smaller number reaches too."""
    return {
        "count": left["count"] + right["count"],
        "delay": running_maxima(left["delay"] + right["delay"]),
        "path": running_maxima(left["path"] + right["path"]),
    }


def records_result(spec: Spec, partial: Partial) -> dict[str, Any]:
    known = spec["known"]
    values = {name: int(known[name]) for name in ("delay", "path")}
    return {
        "count": exact(partial["count"]),
        "known": {"source": known["source"]}
        | {name: exact(value) if value >= 0 else None for name, value in values.items()},
        "records": {"delay": _records(partial["delay"]), "path": _records(partial["path"])},
    }
