"""Memory that a replica of a spec can need at most, and time that it takes, roughly."""

from __future__ import annotations

from jobs.kinds.thread import tables
from jobs.models import Spec

#: Bytes of a row of the kernel's table of families.
_FAMILY_BYTES = 96
#: Nanoseconds of one CPU core per simulated thread: a constant and a share per simulated core; per slice of round_robin
#: beyond the first; and per replica.
_THREAD_NS = {"fifo": (30.0, 0.15), "lifo": (36.0, 0.15), "round_robin": (42.0, 0.15), "work_stealing": (42.0, 0.4)}
_SLICE_NS = 20.0
_REPLICA_NS = 600.0
#: With work_stealing, per simulated core: of a replica; of one whose threads spawn, so that idle cores try to steal;
#: and of each root that arrives where cores are idle and try.
_CORE_NS, _STEAL_NS, _TRY_NS = 5.0, 75.0, 31.0
#: Replicas that the kernel sums in one go at most, and seconds that each go takes besides.
CHUNK_REPLICAS, _CHUNK_SECONDS = 65_536, 1.2e-3
#: Seconds that recording one event of a trace takes, and one root.
_EVENT_SECONDS, _ROOT_SECONDS = 30e-6, 7e-6


def families(spec: Spec, scheduler: str) -> int:
    """Return the rows that a replica can need: each family has a member; roots that arrive one by one are families of
    their own; with round_robin every thread may wait for its next slice.
    """
    roots, most = int(spec["thread_count"]), int(spec["most_threads"])
    rows = most - roots + (roots if spec["arrival"] else 1) + 1
    return rows + most if scheduler == "round_robin" else rows


def replica_bytes(spec: Spec) -> int:
    """Return the bytes that a replica can need in the cell that needs most."""
    return _FAMILY_BYTES * max(families(spec, scheduler) for _, scheduler in spec["cells"])


def slices(spec: Spec) -> float:
    """Expected slices of a thread under round_robin, at most."""
    return 1 + float(tables.mean_work(spec["work"])) / spec["quantum_ns"]


def steps(spec: Spec, cores: int, scheduler: str) -> float:
    """Expected steps of a replica: threads, slices of round_robin, and with work_stealing attempts of cores that idle
    while roots arrive.
    """
    again = slices(spec) if scheduler == "round_robin" else 1.0
    tries = cores * spec["thread_count"] * _idle(spec, cores) if scheduler == "work_stealing" else 0.0
    return float(spec["expected_threads"]) * again + tries


def seconds(spec: Spec, threads: float, cores: int, scheduler: str) -> float:
    """Rough seconds of one replica on one CPU core."""
    fixed, per_core = _THREAD_NS[scheduler]
    again = _SLICE_NS * (slices(spec) - 1) if scheduler == "round_robin" else 0.0
    tries = 0.0
    if scheduler == "work_stealing":
        steals = _STEAL_NS if spec["expected_threads"] > spec["thread_count"] else 0.0
        tries = cores * (_CORE_NS + steals + _TRY_NS * spec["thread_count"] * _idle(spec, cores))
    return (threads * (fixed + per_core * cores + again) + _REPLICA_NS + tries) / 1e9


def _idle(spec: Spec, cores: int) -> float:
    """Share of the machine that stands idle while roots arrive, at most; 0 for a batch."""
    if spec["arrival"] is None:
        return 0.0
    work = spec["expected_threads"] * float(tables.mean_work(spec["work"]))
    lasts = spec["thread_count"] * float(tables.mean_arrival(spec["arrival"]))
    return max(0.0, 1 - work / (lasts * cores))


def chunk_seconds(spec: Spec) -> float:
    """Rough seconds that a job's chunks take besides its replicas: many where batch_size is small."""
    most = min(spec["batch_size"] or CHUNK_REPLICAS, CHUNK_REPLICAS)
    return _CHUNK_SECONDS * len(spec["cells"]) * -(-int(spec["replicas"]) // most)


def trace_seconds(spec: Spec) -> float:
    """Rough seconds of recording the replica that is asked for."""
    events = min(3.0 * spec["expected_threads"], float(spec["trace"]["max_events"]))
    return _EVENT_SECONDS * events + _ROOT_SECONDS * spec["thread_count"]
