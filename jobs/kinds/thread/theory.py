"""Predictions of the theory of branching processes and queues for a simulation, exact if possible."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from operator import mul
from typing import Any

from jobs.kinds.thread import tables
from jobs.models import Spec


def threads_by_depth(offspring: dict[str, Any], roots: int, max_depth: int) -> list[Fraction]:
    """Return the expected number of threads at each depth 0..max_depth if no spawn is refused."""
    means = [tables.mean_offspring(offspring, depth) for depth in range(max_depth)]
    return list(accumulate(means, mul, initial=Fraction(roots)))


def expected_threads(offspring: dict[str, Any], roots: int, max_depth: int) -> Fraction:
    """Return the expected number of threads of a replica if no spawn is refused."""
    rows = min(max_depth, len(offspring["thresholds"]))
    distinct = [tables.drawn_offspring(offspring, depth) for depth in range(rows)]
    total = level = roots
    for depth in range(max_depth):
        level *= distinct[min(depth, len(distinct) - 1)]
        total = total * tables.ONE + level
    return Fraction(total, tables.ONE**max_depth)


def most_threads(offspring: dict[str, Any], roots: int, max_depth: int, cap: int) -> int:
    """Return the maximum number of threads that a replica can have."""
    threads = level = roots
    for _ in range(max_depth):
        level *= max(offspring["values"])
        threads += level
        if threads >= cap:
            return cap
    return threads


def bag_makespan(mean: Fraction, roots: int, cores: int) -> Fraction:
    """Return the expected makespan of `roots` >= `cores` exponential tasks on greedily scheduled cores."""
    return mean * (Fraction(roots - cores, cores) + sum(Fraction(1, i) for i in range(1, cores + 1)))


def is_childless(spec: Spec) -> bool:
    return spec["max_depth"] == 0 or max(spec["offspring"]["values"]) == 0


def is_bag(spec: Spec, cores: int) -> bool:
    """Return True if the model is a batch of independent exponential tasks without costs."""
    plain = spec["work"]["law"] == "exponential" and spec["dispatch_ns"] == 0 and spec["arrival"] is None
    return is_childless(spec) and plain and spec["thread_count"] >= cores


def extinction(offspring: dict[str, Any], roots: int, depth: int) -> float:
    """Return the probability that no thread reaches a depth, computed by nested generating functions."""
    extinct = 0.0
    for above in reversed(range(depth)):
        weights = tables.offspring_weights(offspring, above)
        extinct = sum(float(weight) * extinct**children for children, weight in weights)
    return extinct**roots


def work_of_a_root(spec: Spec) -> Fraction:
    """Return the expected time in ns that a root and its whole tree occupy a core, including all costs."""
    levels = threads_by_depth(spec["offspring"], 1, spec["max_depth"])
    threads = sum(levels, Fraction(0))
    work = threads * (tables.mean_work(spec["work"]) + spec["dispatch_ns"]) + (threads - 1) * spec["spawn_ns"]
    if spec["join"] == "none":
        return work
    shares = [_share_of_parents(spec["offspring"], depth) for depth in range(spec["max_depth"])]
    parents = sum(map(mul, levels, shares), Fraction(0))
    return work + parents * spec["join_ns"]


def _share_of_parents(offspring: dict[str, Any], depth: int) -> Fraction:
    """Return the probability that a thread at this depth has children.

    A table can list 0 children twice.
    """
    draws = tables.offspring_draws(offspring, depth)
    return Fraction(sum(count for children, count in draws if children > 0), tables.ONE)


def offered_load(spec: Spec, cores: int) -> Fraction | None:
    """Return the share of the machine's capacity that endlessly arriving roots need, or None for a batch."""
    if spec["arrival"] is None:
        return None
    return work_of_a_root(spec) / tables.mean_arrival(spec["arrival"]) / cores


def overloads(spec: Spec) -> list[str]:
    """Return a warning for each number of cores that is too small for the offered load."""
    offered = offered_load(spec, 1)
    if offered is None:
        return []
    loads = {cores: offered / cores for cores, _ in spec["cells"]}
    return [
        f"offered load {float(load):.3g} of {cores} cores is at least 1, so waits grow with thread_count"
        for cores, load in loads.items()
        if load >= 1
    ]


def erlang_c(cores: int, offered: Fraction) -> Fraction:
    """Return the probability that an arrival waits in an M/M/c queue (Erlang C).

    `offered` is load x cores and below `cores`.
    """
    blocked = Fraction(1)
    for servers in range(1, cores + 1):
        blocked = offered * blocked / (servers + offered * blocked)
    return blocked / (1 - offered / cores * (1 - blocked))


def is_queue(spec: Spec, scheduler: str) -> bool:
    """Return True if roots arrive endlessly, have no children, and are served in order of arrival."""
    return spec["arrival"] is not None and is_childless(spec) and scheduler == "fifo"


def queue_waits(spec: Spec, cores: int) -> tuple[Fraction | None, Fraction | None]:
    """Return the probability and the mean in ns of a root's wait in an M/M/c or M/G/1 queue; None without a formula."""
    load = offered_load(spec, cores)
    assert load is not None
    mean, cost = tables.mean_work(spec["work"]), spec["dispatch_ns"]
    if spec["work"]["law"] == "exponential" and cost == 0:
        waits = erlang_c(cores, load * cores)
        return waits, waits * mean / (cores * (1 - load))
    square = tables.square_work(spec["work"])
    if cores > 1 or square is None:
        return None, None
    square += 2 * cost * mean + cost * cost
    return load, square / tables.mean_arrival(spec["arrival"]) / (2 * (1 - load))


def shared_sojourn(spec: Spec, cores: int, scheduler: str) -> Fraction | None:
    """Return the mean time in ns that a root spends in a processor-sharing queue (M/G/1-PS), or None.

    The result is None if slices are too long for this approximation.
    """
    load = offered_load(spec, cores)
    mean = tables.mean_work(spec["work"])
    short = scheduler == "round_robin" and 20 * spec["quantum_ns"] <= mean
    if load is None or load >= 1 or not (short and cores == 1 and is_childless(spec) and spec["dispatch_ns"] == 0):
        return None
    return mean / (1 - load)
