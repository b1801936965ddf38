"""Plans of the kind `collatz`: units, devices and the estimated time of each mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobs.kinds.collatz import frontier_plan
from jobs.kinds.collatz import records_published as published
from jobs.kinds.collatz.frontier_rules import MOST_GPU_BITS
from jobs.kinds.collatz.parameters import GRAINS, Known, Parameters
from jobs.models import Device, Plan
from threads_protocol.numbers import exact

#: Maximum number of shortcut steps, n/2 or (3n+1)/2, of a trajectory.
STEP_LIMIT = 20_000_000
#: Maximum duration in seconds of the computation of a trajectory, which is a single unit.
TRAJECTORY_SECONDS = 900.0


def plan_range(parameters: Parameters) -> Plan:
    mode, batch = parameters.mode, parameters.batch_size
    start, count = parameters.start_number, parameters.number_count
    assert start is not None and count is not None  # guaranteed by the validators of `Parameters`
    more: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    if parameters.columns:
        more = shown = {"columns": parameters.columns, "density": bool(parameters.density)}
    elif mode == "records":
        more, shown = _known_facts(start, parameters.known)
    return Plan(
        total=count,
        grain=GRAINS[mode],
        offset=start % GRAINS[mode],
        spec={"mode": mode, "start": str(start), "count": count, "batch_size": batch} | more,
        parameters={"mode": mode, "start_number": exact(start), "number_count": count, "batch_size": batch} | shown,
        devices=(Device.CPU,) if mode == "records" or parameters.columns else (Device.GPU, Device.CPU),
        cpu_seconds=SECONDS[mode](start, count, batch, parameters.columns or 1),
        mode=mode,
    )


def _known_facts(start: int, known: Known | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the maxima that are known below the start of a range, for the job's spec and for its parameters."""
    if known:
        given = {"delay": known.delay, "path": exact(known.path)}
        return {"known": given | {"path": str(known.path), "source": "given", "complete": None}}, {"known": given}
    delay, path = published.maximum_below(published.DELAYS, start), published.maximum_below(published.PATHS, start)
    reach = min(published.DELAYS[-1][0], published.PATHS[-1][0])
    complete, source = None, "published" if start > 1 else "nothing, because no number is smaller"
    if start > reach + 1:
        complete, source = reach, f"published, complete up to {reach} only"
    return {"known": {"delay": delay, "path": str(path), "source": source, "complete": complete}}, {"known": None}


def _statistics_seconds(start: int, count: int, batch_size: int | None, columns: int = 1) -> float:
    """Estimate how many seconds the statistics of a range take on one CPU core.

    Each column is a separate range; numbers below 2^18 have no blocks.
    """
    columns = min(columns, count)
    lowest = min(count, max(0, 2**18 - start)) * 2.5e-7
    return 5e-4 + lowest + columns * _range_seconds(start + count, -(-count // columns), batch_size)


def _range_seconds(end: int, count: int, batch_size: int | None) -> float:
    """Estimate how many seconds the statistics of one column take on one CPU core.

    The terms are launches, single numbers, small blocks at both ends, and large blocks.
    """
    bits = end.bit_length()
    single = count if batch_size and batch_size < 2**10 else min(count, 2**11)
    rate = 5e8 if bits <= 44 else 2.5e8 * 50 / max(bits, 50)
    ends = min(count, 2**17) * bits * 1e-9 + min(count, 2**25) / 4e8
    return 6e-5 + 4e-6 * count / (batch_size or count) + single * bits / 1.6e8 + ends + count / rate


def _verify_seconds(start: int, count: int, batch_size: int | None, _columns: int) -> float:
    """Estimate how many seconds the verification of a range takes on one CPU core.

    The terms are whole blocks, slower cells at both ends, and launches.
    """
    wide = start + count >= 2**90
    rate = 1e10 if wide else 6e10 if start + count < 2**42 else 4e10
    return count / rate + min(count, 2**25) / (3e8 if wide else 4e9) + 5e-4 + 4e-5 * (2 + count / (batch_size or 2**32))


def _records_seconds(start: int, count: int, batch_size: int | None, _columns: int) -> float:
    """Estimate how many seconds a search for records takes: half as long as statistics, unless numbers are large."""
    blocks = count > 2**28 and 2**32 < start + count < 2**64
    return _statistics_seconds(start, count, batch_size) / (2 if blocks else 1)


SECONDS: dict[str, Callable[[int, int, int | None, int], float]] = {
    "statistics": _statistics_seconds,
    "verify": _verify_seconds,
    "records": _records_seconds,
}


def plan_trajectory(parameters: Parameters) -> Plan:
    n, max_points = parameters.n, parameters.max_points or 4000
    assert n is not None  # guaranteed by the validators of `Parameters`
    bits = n.bit_length()
    return Plan(
        total=1,
        spec={"mode": "trajectory", "n": str(n), "max_points": max_points, "step_limit": STEP_LIMIT},
        parameters={"mode": "trajectory", "n": exact(n), "max_points": max_points},
        # A step takes longer for longer numbers; a point of the curve takes a constant time.
        # Most numbers take 5 shortcut steps per bit, and the worst numbers take 15.
        cpu_seconds=8 * bits * (5e-7 + 2.5e-11 * bits) + 6e-6 * min(8 * bits, max_points),
        mode="trajectory",
        max_lease_seconds=TRAJECTORY_SECONDS,
    )


def plan_frontier(parameters: Parameters) -> Plan:
    bits = parameters.bits
    assert bits is not None  # guaranteed by the validators of `Parameters`
    return Plan(
        total=frontier_plan.division(bits).units,
        spec={"mode": "frontier", "bits": bits},
        parameters={"mode": "frontier", "bits": bits},
        devices=(Device.GPU, Device.CPU) if bits <= MOST_GPU_BITS else (Device.CPU,),
        cpu_only="" if bits <= MOST_GPU_BITS else f"GPUs search up to 2^{MOST_GPU_BITS}.",
        cpu_seconds=0.1 + 2**bits / 2e11,
        mode="frontier",
    )
