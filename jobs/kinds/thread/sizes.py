"""Estimates of the memory and the computing time of a simulation run."""

from __future__ import annotations

from jobs.kinds.thread import tables
from jobs.models import Spec

#: Size in bytes of a family (group of siblings) in the memory of the CPU kernel.
_FAMILY_BYTES = 96
#: CPU time in ns per thread as (constant, addition per simulated core), per further time slice, and per replica.
_THREAD_NS = {"fifo": (30.0, 0.15), "lifo": (36.0, 0.15), "round_robin": (42.0, 0.15), "work_stealing": (42.0, 0.4)}
_SLICE_NS = 20.0
_REPLICA_NS = 600.0
#: Additional CPU time in ns per simulated core with work stealing.
#: The values apply to each replica, each replica with spawns, and each root that arrives while cores are idle.
_CORE_NS, _STEAL_NS, _TRY_NS = 5.0, 75.0, 31.0
#: Maximum number of replicas that the kernel simulates in one chunk, and overhead of a chunk in seconds.
CHUNK_REPLICAS, _CHUNK_SECONDS = 65_536, 1.2e-3
#: CPU time in seconds for recording one trace event, and for recording one root.
_EVENT_SECONDS, _ROOT_SECONDS = 30e-6, 7e-6


def families(spec: Spec, scheduler: str) -> int:
    """Return the maximum number of families (groups of siblings) of a replica.

    Each family has at least one member. Roots that arrive separately are separate families. With round_robin, every
    thread can wait for its next slice.
    """
    roots, most = int(spec["thread_count"]), int(spec["most_threads"])
    rows = most - roots + (roots if spec["arrival"] else 1) + 1
    return rows + most if scheduler == "round_robin" else rows


def replica_bytes(spec: Spec) -> int:
    """Return the maximum memory of a replica in bytes, over all simulated machines."""
    return _FAMILY_BYTES * max(families(spec, scheduler) for _, scheduler in spec["cells"])


def slices(spec: Spec) -> float:
    """Return an upper bound of the expected number of time slices of a thread under round robin."""
    return 1 + float(tables.mean_work(spec["work"])) / spec["quantum_ns"]


def steps(spec: Spec, cores: int, scheduler: str) -> float:
    """Return the expected number of steps of a replica: threads, time slices, and steal attempts of idle cores."""
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
    """Return an upper bound of the share of time in which cores are idle while roots arrive; 0 for a batch."""
    if spec["arrival"] is None:
        return 0.0
    work = spec["expected_threads"] * float(tables.mean_work(spec["work"]))
    lasts = spec["thread_count"] * float(tables.mean_arrival(spec["arrival"]))
    return max(0.0, 1 - work / (lasts * cores))


def chunk_seconds(spec: Spec) -> float:
    """Return the estimated overhead in seconds for dividing a job into chunks.

    The overhead is large if batch_size is small.
    """
    most = min(spec["batch_size"] or CHUNK_REPLICAS, CHUNK_REPLICAS)
    return _CHUNK_SECONDS * len(spec["cells"]) * -(-int(spec["replicas"]) // most)


def trace_seconds(spec: Spec) -> float:
    """Return the estimated CPU time in seconds for recording the requested replica."""
    events = min(3.0 * spec["expected_threads"], float(spec["trace"]["max_events"]))
    return _EVENT_SECONDS * events + _ROOT_SECONDS * spec["thread_count"]
