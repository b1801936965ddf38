"""What one replica of a spec can need at most, and about how long it takes."""

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
#: Seconds that recording one event of a trace takes.
_EVENT_SECONDS = 30e-6


def families(spec: Spec, scheduler: str) -> int:
    """Rows that a replica can need: a family has a member; roots that arrive one by one are families of their own;
    with round_robin every thread may wait for its next slice.
    """
    roots, most = int(spec["thread_count"]), int(spec["most_threads"])
    rows = most - roots + (roots if spec["arrival"] else 1) + 1
    return rows + most if scheduler == "round_robin" else rows


def replica_bytes(spec: Spec) -> int:
    """Memory of a replica of the greediest cell."""
    return _FAMILY_BYTES * max(families(spec, scheduler) for _, scheduler in spec["cells"])


def slices(spec: Spec) -> float:
    """Expected slices of a thread under round_robin, at most."""
    return 1 + float(tables.mean_work(spec["work"])) / spec["quantum_ns"]


def seconds(spec: Spec, threads: float, cores: int, scheduler: str) -> float:
    """Rough seconds of one replica on one CPU core."""
    fixed, per_core = _THREAD_NS[scheduler]
    again = _SLICE_NS * (slices(spec) - 1) if scheduler == "round_robin" else 0.0
    return (threads * (fixed + per_core * cores + again) + _REPLICA_NS) / 1e9


def trace_seconds(spec: Spec) -> float:
    """Rough seconds of recording the replica that is asked for."""
    return _EVENT_SECONDS * min(3.0 * spec["expected_threads"], float(spec["trace"]["max_events"]))
