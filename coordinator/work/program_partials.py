"""Validate the partial results of programs, because the API lists the units of a job from them."""

from __future__ import annotations

from pydantic_core import from_json

from jobs import errors
from jobs.kinds import registry
from jobs.store import Store


def check(store: Store, job: str, token: str, lo: int | None, upto: int, partial: bytes, worker: str) -> None:
    """Raise InvalidRequest for a partial of programs that does not match the lease's units below `upto`.

    Partials of other kinds are read only when they are merged. `lo` is the first unit of a lease that continues.
    """
    # A partial of programs contains the name "runs". JSON escapes can hide this name, so check escaped texts too.
    if b'"runs"' not in partial and b"\\" not in partial:
        return
    [job_is], lease = store.slots.described([job]), store.outputs.leased(job, token)
    running = registry.program_kind(job_is.kind) if job_is and job_is.kind in registry.names() else None
    if running is None or lease is None:
        return
    first = lease.lo if lo is None else lo
    if wrong := running.complaint(_read(partial), first, upto, worker):
        raise errors.InvalidRequest(f"partial: {wrong}", field="partial")


def _read(partial: bytes) -> dict[str, object]:
    try:
        read = from_json(partial, allow_inf_nan=False)
    except ValueError:
        read = None
    return read if isinstance(read, dict) else {}
