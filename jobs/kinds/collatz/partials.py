"""Partials of statistics: how two become one, and what is derived from the last one.

A partial is `{"histogram": [[delay, count], ...], "delay": [[n, value], ...], "path": [[n, value], ...]}`: delays
ascending without zero counts, records ascending in n. Everything else of the result follows from these three. With
columns there are also `"columns": [[column, count, sum, min, max, argmax], ...]` and `"density": [[column, histogram],
...]`, ascending, of the columns that the part touches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from jobs.kinds.collatz.statistics_columns import Layout
from jobs.models import Partial, Spec
from threads_protocol.numbers import exact

#: (n, value): a record candidate.
Record = list[int]


def running(candidates: Iterable[Record]) -> list[Record]:
    """The candidates whose value exceeds that of every smaller n, ascending in n.

    What is dropped is dominated by something kept, so `running(running(a) + running(b)) == running(a + b)` whatever
    the order or the gaps: merging is associative, commutative and idempotent, and needs no adjacent ranges.
    """
    kept: list[Record] = []
    for n, value in sorted(candidates, key=lambda record: (record[0], -record[1])):
        if not kept or value > kept[-1][1]:
            kept.append([n, value])
    return kept


def sorted_pairs(histogram: Counter[int]) -> list[list[int]]:
    return [list(pair) for pair in sorted(histogram.items())]


def _summed(left: list[list[int]], right: list[list[int]]) -> list[list[int]]:
    """Two histograms as one."""
    counts: Counter[int] = Counter()
    for delay, count in (*left, *right):
        counts[delay] += count
    return sorted_pairs(counts)


def column_row(column: int, histogram: Counter[int], last: Record) -> list[int]:
    """[column, count, sum, least, greatest delay, first n that has it] of a column or a part of it."""
    total = sum(delay * count for delay, count in histogram.items())
    return [column, histogram.total(), total, min(histogram), last[1], last[0]]


def _one_column(left: list[int], right: list[int]) -> list[int]:
    most, where = max((left[4], -left[5]), (right[4], -right[5]))
    return [left[0], left[1] + right[1], left[2] + right[2], min(left[3], right[3]), most, -where]


def _by_column(left: list[Any], right: list[Any], join: Callable[[Any, Any], Any]) -> list[Any]:
    """Rows whose first item is the column, those of the same column joined."""
    rows = {row[0]: row for row in left}
    for row in right:
        rows[row[0]] = join(rows[row[0]], row) if row[0] in rows else row
    return [rows[column] for column in sorted(rows)]


def merge(left: Partial, right: Partial) -> Partial:
    """Both ranges as one partial; neither argument changes."""
    merged = {
        "histogram": _summed(left["histogram"], right["histogram"]),
        "delay": running(left["delay"] + right["delay"]),
        "path": running(left["path"] + right["path"]),
    }
    if "columns" in left:
        merged["columns"] = _by_column(left["columns"], right["columns"], _one_column)
    if "density" in left:
        join = lambda one, other: [one[0], _summed(one[1], other[1])]  # noqa: E731
        merged["density"] = _by_column(left["density"], right["density"], join)
    return merged


def _records(records: list[Record]) -> list[dict[str, Any]]:
    return [{"n": exact(n), "value": exact(value)} for n, value in records]


def columns_result(columns: Layout, start: int, rows: list[list[int]]) -> dict[str, list[Any]]:
    """Return columns for drawing: a list a field, an item a column. The mean is rounded once from integers."""
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
    """Return what users read; the two floats are each rounded once from exact integers."""
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


#: How many numbers a list of failures names at most.
NAMED = 100


def first_few(numbers: Iterable[int]) -> list[int]:
    """The least of them, ascending: of any parts, merged in any order, the same remain."""
    return sorted(set(numbers))[:NAMED]


def merge_verified(left: Partial, right: Partial) -> Partial:
    """Both ranges as one partial; neither argument changes."""
    summed = {key: left[key] + right[key] for key in ("count", "candidates", "blocks", "checksum")}
    unresolved = first_few(left["unresolved"] + right["unresolved"])
    return summed | {"bits": max(left["bits"], right["bits"]), "unresolved": unresolved}


def merge_records(left: Partial, right: Partial) -> Partial:
    """Candidates of both ranges: what a smaller n of the other dominates is dropped."""
    return {
        "count": left["count"] + right["count"],
        "delay": running(left["delay"] + right["delay"]),
        "path": running(left["path"] + right["path"]),
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
