"""Computation of leases and small jobs, and derivation of results. The only function that a bell names is here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs import errors, marks
from jobs.gathered import Gathered
from jobs.kinds import registry
from jobs.kinds.contract import Tick
from jobs.models import Device, Partial, Spec

if TYPE_CHECKING:  # else each lane of a CPU worker would load all that speaks to Redis
    from jobs.store.work.lease_store import LeaseStore

#: Parts are folded when this many wait, so that finishing stays quick.
FOLD_AT = 32
#: Parts read at once.
GATHERED = 256


def wake_up() -> None:
    """Stand for `look for work` in RQ's queues. Never called: workers answer a bell by asking NEXT."""


@dataclass(frozen=True, kw_only=True)
class Computed:
    """A lane's answer for one lease."""

    #: First unit not computed; equal to lo when nothing was.
    upto: int
    partial: Partial
    #: Seconds inside the kernel.
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A small job, computed to the end."""

    #: The result as stored.
    result: bytes
    #: The marks that it leaves, as stored.
    marks: str
    #: Seconds inside the kernel.
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Derived:
    """Accumulator and parts folded into one, the result, and the marks that it leaves; all as stored."""

    folded: bytes
    result: bytes
    marks: str


def compute(kind: str, device: Device, spec: Spec, lo: int, hi: int, tick: Tick) -> Computed:
    """Run the kind's kernel over units lo..hi-1. Raises KernelFailed with the kernel's own words."""
    started = time.perf_counter()
    try:
        upto, partial = registry.kernel(kind, device).run(spec, lo, hi, tick)
    except Exception as error:
        raise errors.KernelFailed(
            f"{kind} on {device}, units {lo}..{hi - 1}: {type(error).__name__}: {error}"
        ) from error
    return Computed(upto=upto, partial=partial, seconds=time.perf_counter() - started)


def whole(kind: str, device: Device, spec: Spec, total: int) -> Whole:
    """Compute a small job to its result. Raises KernelFailed."""
    done = compute(kind, device, spec, 0, total, lambda upto: True)
    try:
        result = registry.definition(kind).result(spec, done.partial)
        return Whole(result=encode(result), marks=marks.left_by(kind, spec, result), seconds=done.seconds)
    except Exception as error:
        detail = f"{kind}: the result could not be derived: {type(error).__name__}: {error}"
        raise errors.KernelFailed(detail) from error


def encode(partial: Partial) -> bytes:
    return json.dumps(partial, separators=(",", ":")).encode()


def encoded(kind: str, device: Device, partial: Partial) -> bytes:
    """Encode a kernel's partial as stored. Raises KernelFailed for what JSON lacks, such as numpy's integers."""
    try:
        return encode(partial)
    except (TypeError, ValueError, RecursionError) as error:
        detail = f"{kind} on {device}: the partial cannot be stored as JSON: {type(error).__name__}: {error}"
        raise errors.KernelFailed(f"{detail}; convert its values with int() or float()") from error


def _merged(kind: str, gathered: Gathered) -> Partial | None:
    definition = registry.definition(kind)
    total: Partial | None = json.loads(gathered.accumulator) if gathered.accumulator else None
    for text in gathered.parts:
        part = json.loads(text)
        total = part if total is None else definition.merge(total, part)
    return total


def fold(store: LeaseStore, job: str, kind: str) -> None:
    """Merge waiting parts into the accumulator; losing the race to another worker is fine. Raises KernelFailed."""
    gathered = store.results.gather(job)
    try:
        total = _merged(kind, gathered)
    except Exception as error:
        raise errors.KernelFailed(f"partials could not be merged: {type(error).__name__}: {error}") from error
    if gathered.parts and total is not None:
        store.results.fold(job, gathered, encode(total))


def derive(kind: str, spec: Spec, gathered: Gathered) -> Derived:
    """Fold what was gathered and derive the result. Takes seconds for large ones. Raises KernelFailed."""
    try:
        total = _merged(kind, gathered)
        result = registry.definition(kind).result(spec, total or {})
        folded = encode(total or {}) if gathered.parts else gathered.accumulator or b""
        return Derived(folded=folded, result=encode(result), marks=marks.left_by(kind, spec, result))
    except Exception as error:
        raise errors.KernelFailed(f"the result could not be derived: {type(error).__name__}: {error}") from error


#: Does what `derive` does; a lane runs it where computing disturbs nobody.
Derive = Callable[[str, Spec, Gathered], Derived]


def finish(store: LeaseStore, job: str, kind: str, spec: Spec, derive: Derive = derive) -> bool:
    """Fold what is left, derive the result and store it. False: somebody else did, or the job moved on or failed."""
    try:
        return _finish(store, job, kind, spec, derive)
    except errors.KernelFailed as failure:
        store.results.abort(job, str(failure))
        return False


def _finish(store: LeaseStore, job: str, kind: str, spec: Spec, derive: Derive) -> bool:
    derived: Derived | None = None
    while True:
        gathered = store.results.gather(job, GATHERED)
        if len(gathered.parts) == GATHERED:  # there may be more
            fold(store, job, kind)
            continue
        if derived and not gathered.parts and gathered.accumulator == derived.folded:
            return store.results.finish(job, gathered, derived.result, derived.marks)
        if not gathered.parts and gathered.accumulator is None:
            return False
        derived = derive(kind, spec, gathered)
        if gathered.parts and store.results.fold(job, gathered, derived.folded):
            folded = replace(gathered, accumulator=derived.folded, parts=())
            if store.results.finish(job, folded, derived.result, derived.marks):  # as a rule, nothing has come since
                return True


def so_far(kind: str, spec: Spec, gathered: Gathered) -> Partial | None:
    """Return the result over what is committed up to now, or None."""
    total = _merged(kind, gathered)
    return None if total is None else registry.definition(kind).result(spec, total)
