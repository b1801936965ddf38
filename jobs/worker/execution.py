"""Computes leases and small jobs, merges partial results, and derives the results of jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs import errors, marks
from jobs.kinds import registry
from jobs.kinds.contract import Tick
from jobs.models import Device, Partial, Spec
from jobs.partial_reader import GatheredPartials

if TYPE_CHECKING:  # This import is only for types: at run time, each CPU lane would load the Redis client.
    from jobs.store.work.lease_store import LeaseStore

#: Number of waiting partial results at which a worker merges them, so that finishing a job stays fast.
FOLD_AT = 32
#: Maximum number of partial results that one read returns.
GATHER_LIMIT = 256


def wake_up() -> None:
    """Do nothing. RQ jobs name this function, but workers use an RQ job only as a signal to request work."""


@dataclass(frozen=True, kw_only=True)
class Computed:
    """Result of computing one lease."""

    #: First unit that was not computed; equal to the first unit of the lease if nothing was computed.
    upto: int
    partial: Partial
    #: Time in seconds spent in the kernel.
    seconds: float


@dataclass(frozen=True, kw_only=True)
class SmallJobResult:
    """Result of a small job, which is computed in one call."""

    #: Result of the job, encoded for the store.
    result: bytes
    #: Proven facts about ranges of integers (marks) that the result adds, encoded for the store.
    marks: str
    #: Time in seconds spent in the kernel.
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Derived:
    """Merged partial results of a job, its final result and its marks, encoded for the store."""

    folded: bytes
    result: bytes
    marks: str


def compute(kind: str, device: Device, spec: Spec, lo: int, hi: int, tick: Tick) -> Computed:
    """Run the kind's kernel over units `lo` to `hi - 1`.

    Raises KernelFailed with the kernel's error message.
    """
    started = time.perf_counter()
    try:
        upto, partial = registry.kernel(kind, device).run(spec, lo, hi, tick)
    except Exception as error:
        raise errors.KernelFailed(
            f"{kind} on {device}, units {lo}..{hi - 1}: {type(error).__name__}: {error}"
        ) from error
    return Computed(upto=upto, partial=partial, seconds=time.perf_counter() - started)


def compute_small_job(kind: str, device: Device, spec: Spec, total: int) -> SmallJobResult:
    """Compute a small job and derive its result. Raises KernelFailed."""
    done = compute(kind, device, spec, 0, total, lambda upto: True)
    try:
        result = registry.definition(kind).result(spec, done.partial)
        return SmallJobResult(
            result=encode(result), marks=marks.serialize_marks(kind, spec, result), seconds=done.seconds
        )
    except Exception as error:
        detail = f"{kind}: cannot derive the result: {type(error).__name__}: {error}"
        raise errors.KernelFailed(detail) from error


def encode(partial: Partial) -> bytes:
    return json.dumps(partial, separators=(",", ":")).encode()


def encoded(kind: str, device: Device, partial: Partial) -> bytes:
    """Encode a kernel's partial result as JSON for the store.

    Raises KernelFailed if JSON cannot encode a value, such as an integer of numpy.
    """
    try:
        return encode(partial)
    except (TypeError, ValueError, RecursionError) as error:
        detail = f"{kind} on {device}: cannot encode the partial result as JSON: {type(error).__name__}: {error}"
        raise errors.KernelFailed(f"{detail}; convert its values with int() or float()") from error


def _merged(kind: str, gathered: GatheredPartials) -> Partial | None:
    definition = registry.definition(kind)
    total: Partial | None = json.loads(gathered.accumulator) if gathered.accumulator else None
    for text in gathered.parts:
        part = json.loads(text)
        total = part if total is None else definition.merge(total, part)
    return total


def fold(store: LeaseStore, job: str, kind: str) -> None:
    """Merge the waiting partial results of a job into one. Raises KernelFailed.

    If another worker merged them first, the call changes nothing.
    """
    gathered = store.results.gather(job)
    try:
        total = _merged(kind, gathered)
    except Exception as error:
        raise errors.KernelFailed(f"cannot merge the partial results: {type(error).__name__}: {error}") from error
    if gathered.parts and total is not None:
        store.results.fold(job, gathered, encode(total))


def derive(kind: str, spec: Spec, gathered: GatheredPartials) -> Derived:
    """Merge the partial results of a job and derive its final result. Raises KernelFailed.

    This takes seconds for large jobs.
    """
    try:
        total = _merged(kind, gathered)
        result = registry.definition(kind).result(spec, total or {})
        folded = encode(total or {}) if gathered.parts else gathered.accumulator or b""
        return Derived(folded=folded, result=encode(result), marks=marks.serialize_marks(kind, spec, result))
    except Exception as error:
        raise errors.KernelFailed(f"cannot derive the result: {type(error).__name__}: {error}") from error


#: Type of functions that derive a job's result. The functions of lanes do not delay the worker's heartbeats.
Derive = Callable[[str, Spec, GatheredPartials], Derived]


def finish(store: LeaseStore, job: str, kind: str, spec: Spec, derive: Derive = derive) -> bool:
    """Merge the remaining partial results, and store the job's result. Return True if this call finished the job.

    Returns False if another worker finished the job, or if the job failed or changed its state.
    """
    try:
        return _finish(store, job, kind, spec, derive)
    except errors.KernelFailed as failure:
        store.results.abort(job, str(failure))
        return False


def _finish(store: LeaseStore, job: str, kind: str, spec: Spec, derive: Derive) -> bool:
    derived: Derived | None = None
    while True:
        gathered = store.results.gather(job, GATHER_LIMIT)
        if len(gathered.parts) == GATHER_LIMIT:  # If a read is full, more partial results can be waiting.
            fold(store, job, kind)
            continue
        if derived and not gathered.parts and gathered.accumulator == derived.folded:
            return store.results.finish(job, gathered, derived.result, derived.marks)
        if not gathered.parts and gathered.accumulator is None:
            return False
        derived = derive(kind, spec, gathered)
        if gathered.parts and store.results.fold(job, gathered, derived.folded):
            folded = replace(gathered, accumulator=derived.folded, parts=())
            # Usually, no partial result has arrived since the read, so the job finishes at once.
            if store.results.finish(job, folded, derived.result, derived.marks):
                return True


def partial_result(kind: str, spec: Spec, gathered: GatheredPartials) -> Partial | None:
    """Return the result of the units that are committed so far, or None if there are none."""
    total = _merged(kind, gathered)
    return None if total is None else registry.definition(kind).result(spec, total)
