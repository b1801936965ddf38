"""Check the lease in a worker's call. A lease gives access to the job's files, secrets and output."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from coordinator.state import shared_state
from coordinator.work.identity import WorkerDep, worker_lease_token
from jobs import errors
from jobs.store import Store
from jobs.store.work.bounds import JobId, LeaseToken
from jobs.store.work.outputs import LeasedUnits

Job = Annotated[JobId, Path()]


class LeasedCall(BaseModel):
    """Body of a call about a job, with a lease that the worker holds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    lease: LeaseToken


def stale(job: str) -> errors.Conflict:
    """Return the error for a lease that the worker does not hold."""
    return errors.Conflict(f"stale: this worker does not hold this lease of job {job}; discard its work", field="lease")


def require(store: Store, worker: str, job: str, lease: str) -> LeasedUnits:
    """Return a lease of this worker. Raises Conflict if the worker does not hold it or if its job runs no programs."""
    found = store.outputs.leased(job, worker_lease_token(worker, lease))
    if found is None:
        raise stale(job)
    if not found.runs_programs:
        raise errors.Conflict(f"job {job} runs no programs and therefore has no files, secrets or output", field="job")
    return found


async def _leased(
    request: Request,
    worker: WorkerDep,
    job: Job,
    lease: Annotated[LeaseToken, Query()],
) -> LeasedUnits:
    return await run_in_threadpool(require, shared_state(request).cluster.store, worker, job, lease)


LeasedDep = Annotated[LeasedUnits, Depends(_leased)]
