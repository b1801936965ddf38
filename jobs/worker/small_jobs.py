"""Computes small jobs. A worker leases each small job as a whole and finishes it in one call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from jobs import errors
from jobs.models import Device
from jobs.store.work.leases import Finished, Grant
from jobs.store.work.slots import JobFacts, Taken
from jobs.worker.execution import SmallJobResult
from jobs.worker.lanes import Lane, LaneDied, Task
from jobs.worker.state import WorkerState
from jobs.worker.telemetry.meter import Share

log = logging.getLogger(__name__)

#: Description of a small job, and the token of its lease.
Claimed = tuple[JobFacts, str]


def serve(state: WorkerState, taken: Taken, threads: ThreadPoolExecutor) -> None:
    """Distribute small jobs over the idle lanes. The calling thread runs the first lane."""
    work = [(fact, token) for fact, (_, token) in zip(taken.facts, taken.jobs, strict=True)]
    lanes = [lane for lane in (state.pool.borrow() for _ in range(min(len(state.pool.idle), len(work)))) if lane]
    if not lanes:  # All lanes have died since the worker requested the jobs.
        _hand_back(state, work, state.store.leases.release)
        return
    shares = [work[number :: len(lanes)] for number in range(len(lanes))]
    waits = [threads.submit(_take, state, *pair) for pair in zip(lanes[1:], shares[1:], strict=True)]
    _take(state, lanes[0], shares[0])
    for wait in waits:
        wait.result()


def _take(state: WorkerState, lane: Lane, work: list[Claimed]) -> None:
    """Compute jobs on one lane, finish each, and return the lane to the pool."""
    tasks = {token: Task(fact, Grant(token=token, lo=0, hi=fact.total)) for fact, token in work}
    wanted = dict(tasks)
    places = {token: place for place, (_, token) in enumerate(work)}
    state.tasks.update(tasks)
    try:
        with state.meter.lease() as share:
            results = lane.compute_small(
                [fact for fact, _ in work], lambda: _return_dropped(state, lane, wanted, places)
            )
        finish(state, work, results, share)
    except LaneDied as died:
        log.warning("%s", died, extra={"lane": lane.name, "jobs": len(work)})
        for fact, token in (claimed for claimed in work if claimed[1] in wanted):
            blamed = died.touched and places[token] == lane.at
            _hand_back(state, [(fact, token)], _return_call(state, blamed=blamed))
    finally:
        for token in tasks:
            state.tasks.pop(token, None)
        state.pool.give_back(lane)


def _return_dropped(state: WorkerState, lane: Lane, wanted: dict[str, Task], places: Mapping[str, int]) -> bool:
    """Return the leases of cancelled jobs early. Return True if all jobs of the lane were cancelled.

    `wanted` maps tokens to tasks; returned leases are removed from it. The job that the lane is computing counts as a
    crash of the lane. Otherwise, a job that never ends would be retried forever.
    """
    for token in [token for token, task in wanted.items() if task.stop == 2]:
        job, blamed = wanted.pop(token).facts.job_id, places[token] == lane.at
        state.tolerate(partial(_return_call(state, blamed=blamed), job, token), False)
    return not wanted


def _return_call(state: WorkerState, *, blamed: bool) -> Callable[[str, str], bool]:
    """Return the store method that releases a lease. `blamed` is True if the lane crashed while computing the job."""
    return state.store.leases.crash if blamed else state.store.leases.release


def _hand_back(state: WorkerState, work: list[Claimed], how: Callable[[str, str], bool]) -> None:
    for fact, token in work:
        state.persist(partial(how, fact.job_id, token))


def finish(
    state: WorkerState, work: list[Claimed], results: list[SmallJobResult | errors.KernelFailed], share: Share
) -> None:
    """Store the results of small jobs, and charge each job for its share of the GPU time."""
    finished, computed, charged = [], 0.0, 0
    seconds = sum(result.seconds for result in results if isinstance(result, SmallJobResult))
    busy_ms = share.seconds * 1000 / seconds if state.device is Device.GPU and seconds else 0.0
    for (fact, token), result in zip(work, results, strict=True):
        if isinstance(result, errors.KernelFailed):
            state.persist(partial(state.store.leases.fail, fact.job_id, token, str(result)))
        else:
            computed += result.seconds
            device_ms = round(computed * busy_ms) - charged  # Jobs can be shorter than 1 ms.
            charged += device_ms
            finished.append(
                Finished(
                    job_id=fact.job_id,
                    token=token,
                    result=result.result,
                    marks=result.marks,
                    ms=round(result.seconds * 1000),
                    device_ms=device_ms,
                )
            )
    state.persist(lambda: state.store.leases.done1_all(finished, worker=state.worker, device=state.device))
