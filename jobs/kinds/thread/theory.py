"""What branching processes and queues say about a spec, exactly where exact is possible."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from operator import mul
from typing import Any

from jobs.kinds.thread import tables
from jobs.models import Spec


def threads_by_depth(offspring: dict[str, Any], roots: int, max_depth: int) -> list[Fraction]:
    """Expected threads at depth 0..max_depth when no spawn is refused."""
    means = [tables.mean_offspring(offspring, depth) for depth in range(max_depth)]
    return list(accumulate(means, mul, initial=Fraction(roots)))


def most_threads(offspring: dict[str, Any], roots: int, max_depth: int, cap: int) -> int:
    """No replica has more threads."""
    threads = level = roots
    for _ in range(max_depth):
        level *= max(offspring["values"])
        threads += level
        if threads >= cap:
            return cap
    return threads


def bag_makespan(mean: Fraction, roots: int, cores: int) -> Fraction:
    """Expected makespan of `roots` >= `cores` exponential tasks of this mean on `cores` cores, greedily served."""
    return mean * (Fraction(roots - cores, cores) + sum(Fraction(1, i) for i in range(1, cores + 1)))


def is_bag(spec: Spec, cores: int) -> bool:
    """Whether the model is a batch of independent exponential tasks without costs."""
    childless = spec["max_depth"] == 0 or max(spec["offspring"]["values"]) == 0
    plain = spec["work"]["law"] == "exponential" and spec["dispatch_ns"] == 0
    return childless and plain and spec["thread_count"] >= cores
