"""Merges the partial results of simulations without changing the arguments.

A partial result has the form {"cells": {cell number: {...}}}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.kinds import random
from jobs.models import Partial

#: Histogram as [bin, count, bin, count, ...], with ascending bins and positive counts.
Histogram = list[int]
#: Example replicas by name, each as [makespan, replica number].
Examples = dict[str, list[int]]


def merge(left: Partial, right: Partial) -> Partial:
    """Merge two partial results exactly. An empty partial result {} changes nothing.

    A trace is a single unit, so it is merged only with {}.
    """
    if "trace" in left or "trace" in right:
        return dict(left or right)
    cells = dict(left.get("cells", {}))
    for cell, part in right.get("cells", {}).items():
        cells[cell] = merge_cells(cells[cell], part) if cell in cells else part
    return {"cells": cells} if cells else {}


def merge_cells(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {
        name: _add_lists(left[name], right[name])
        for name in ("outcomes", "sum", "sumsq", "products", "depth_sum", "depth_sumsq", "violations", "stuck")
    }
    merged["replicas"] = left["replicas"] + right["replicas"]
    merged["digest"] = left["digest"] + right["digest"] & random.MASK
    merged["min"] = list(map(min, left["min"], right["min"]))
    merged["max"] = list(map(max, left["max"], right["max"]))
    merged["spread"] = [add_histograms(*pair) for pair in zip(left["spread"], right["spread"], strict=True)]
    for name in ("wait", "sojourn", "stuck_at"):
        merged[name] = add_histograms(left[name], right[name])
    merged["examples"] = _examples(left["examples"], right["examples"])
    return merged


def _examples(left: Examples, right: Examples) -> Examples:
    """Return the first replica with the shortest makespan, with the longest makespan, and with a deadlock."""
    both = {name: [side[name] for side in (left, right) if name in side] for name in (*left, *right)}
    order = {
        "fastest": lambda example: (example[0], example[1]),
        "slowest": lambda example: (-example[0], example[1]),
        "deadlocked": lambda example: (example[1], example[0]),
    }
    return {name: min(both[name], key=order[name]) for name in sorted(both)}


def _add_lists(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]


def add_histograms(left: Histogram, right: Histogram) -> Histogram:
    counts = dict(pairs(left))
    for index, count in pairs(right):
        counts[index] = counts.get(index, 0) + count
    return flatten(counts)


def pairs(histogram: Histogram) -> list[tuple[int, int]]:
    return list(zip(histogram[::2], histogram[1::2], strict=True))


def flatten(counts: Mapping[int, int]) -> Histogram:
    return [number for index in sorted(counts) for number in (index, counts[index])]
