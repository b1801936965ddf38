"""Estimates of a replica's memory and computing time."""

from __future__ import annotations

from jobs.kinds.thread import tables
from jobs.models import Spec

#: Size in bytes of a row in the kernel's table of families.
_FAMILY_BYTES = 96
#: CPU nanoseconds per simulated thread, as (constant, share per simulated core); per extra slice; and per replica.
_THREAD_NS = {"fifo": (30.0, 0.15), "lifo": (36.0, 0.15), "round_robin": (42.0, 0.15), "work_stealing": (42.0, 0.4)}
_SLICE_NS = 20.0
_REPLICA_NS = 600.0
#: Extra nanoseconds per simulated core with work_stealing, for three costs:
#: each replica, each replica with spawning threads, and each root that arrives while cores are idle.
_CORE_NS, _STEAL_NS, _TRY_NS = 5.0, 75.0, 31.0
#: Maximum number of replicas that the kernel sums at once, and overhead of each such chunk in seconds.
CHUNK_REPLICAS, _CHUNK_SECONDS = 65_536, 1.2e-3
#: Seconds for recording one trace event, and for recording one root.
_EVENT_SECONDS, _ROOT_SECONDS = 30e-6, 7e-6


def families(spec: Spec, scheduler: str) -> int:
    """Return the maximum number of families of a replica: each family has at least one member.

    Roots that arrive separately are separate families. With round_robin, every thread can wait for its next slice.
    """
    roots, most = int(spec["thread_count"]), int(spec["most_threads"])
    rows = most - roots + (roots if spec["arrival"] else 1) + 1
    return rows + most if scheduler == "round_robin" else rows


def replica_bytes(spec: Spec) -> int:
    """Return the maximum memory of a replica in bytes, over all cells."""
    return _FAMILY_BYTES * max(families(spec, scheduler) for _, scheduler in spec["cells"])


def slices(spec: Spec) -> float:
    """Return an upper bound of the expected slices of a thread under round_robin."""
    return 1 + float(tables.mean_work(spec["work"])) / spec["quantum_ns"]


def steps(spec: Spec, cores: int, scheduler: str) -> float:
    """Return the expected steps of a replica: threads, slices, and steal attempts while cores idle."""
    again = slices(spec) if scheduler == "round_robin" else 1.0
    tries = cores * spec["thread_count"] * _idle(spec, cores) if scheduler == "work_stealing" else 0.0
    return float(spec["expected_threads"]) * again + tries


def seconds(spec: Spec, threads: float, cores: int, scheduler: str) -> float:
    """Return the estimated seconds to simulate one replica on one CPU core."""
    fixed, per_core = _THREAD_NS[scheduler]
    again = _SLICE_NS * (slices(spec) - 1) if scheduler == "round_robin" else 0.0
    tries = 0.0
    if scheduler == "work_stealing":
        steals = _STEAL_NS if spec["expected_threads"] > spec["thread_count"] else 0.0
        tries = cores * (_CORE_NS + steals + _TRY_NS * spec["thread_count"] * _idle(spec, cores))
    return (threads * (fixed + per_core * cores + again) + _REPLICA_NS + tries) / 1e9


def _idle(spec: Spec, cores: int) -> float:
    """Return an upper bound of the machine's idle share while roots arrive; 0 for a batch."""
    if spec["arrival"] is None:
        return 0.0
    work = spec["expected_threads"] * float(tables.mean_work(spec["work"]))
    lasts = spec["thread_count"] * float(tables.mean_arrival(spec["arrival"]))
    return max(0.0, 1 - work / (lasts * cores))


def chunk_seconds(spec: Spec) -> float:
    """Return the estimated overhead of a job's chunks in seconds, which is large if batch_size is small."""
    most = min(spec["batch_size"] or CHUNK_REPLICAS, CHUNK_REPLICAS)
    return _CHUNK_SECONDS * len(spec["cells"]) * -(-int(spec["replicas"]) // most)


def trace_seconds(spec: Spec) -> float:
    """Return the estimated seconds to record the requested replica."""
    events = min(3.0 * spec["expected_threads"], float(spec["trace"]["max_events"]))
    return _EVENT_SECONDS * events + _ROOT_SECONDS * spec["thread_count"]
