"""Partials of statistics: how two become one, and what is derived from the last one.

A partial is `{"histogram": [[delay, count], ...], "delay": [[n, value], ...], "path": [[n, value], ...]}`: delays
ascending without zero counts, records ascending in n. Everything else of the result follows from these three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from jobs.models import Partial
from jobs.numbers import exact

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


def merge(left: Partial, right: Partial) -> Partial:
    """Both ranges as one partial; neither argument changes."""
    counts: Counter[int] = Counter()
    for delay, count in (*left["histogram"], *right["histogram"]):
        counts[delay] += count
    return {
        "histogram": [list(pair) for pair in sorted(counts.items())],
        "delay": running(left["delay"] + right["delay"]),
        "path": running(left["path"] + right["path"]),
    }


def _records(records: list[Record]) -> list[dict[str, Any]]:
    return [{"n": exact(n), "value": exact(value)} for n, value in records]


def result(partial: Partial) -> dict[str, Any]:
    """What a user reads; the two floats are each rounded once from exact integers."""
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
