"""Answers about jobs, for the API's description and the tests."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import Field

from coordinator.schemas import Answer, Problem, optional, required
from jobs.models import JobState

UnitState: TypeAlias = Literal["waiting", "running", "done", "retrying", "dead"]


class Submitted(Answer):
    job_id: str
    status: JobState
    estimated_wait_seconds: float | None = required(
        "null: no live worker serves the job's queue, or it comes after other jobs."
    )
    notes: list[str]
    result: Any = optional("Of a job that was done within wait_seconds.")


class Refused(Answer):
    error: Problem


class SubmittedBatch(Answer):
    answers: list[Submitted | Refused] = required("One for each submission, in their order.")


class Share(Answer):
    """One worker's share of a job."""

    device: str
    units: int
    seconds: float = required("Of its lanes.")
    leases: int
    device_seconds: float | None = optional("Of a GPU, shared by the leases that ran at once.")
    joules: float | None = optional("Energy while its leases ran, shared by them: of the GPU, or of the CPU packages.")


class Usage(Answer):
    lane_seconds: float
    device_seconds: float | None = optional("Of GPUs.")
    joules: float | None = optional("Of the devices that tell; small jobs are not counted.")
    leases: int
    expired_leases: int
    workers: dict[str, Share]


class Job(Answer):
    job_id: str
    tenant: str = required("Whose job it is.")
    type: str
    title: str = required("Its name for people, made from its parameters; at most 80 characters.")
    state: JobState
    priority: str
    device: str
    queue: str
    parameters: dict[str, Any]
    notes: list[str]
    created: str = required("RFC 3339, UTC.")
    started: str | None
    ended: str | None
    seconds: float | None = required("Since it started, or until it ended.")
    progress: float = required("0..1")
    done: int | str
    total: int | str
    rate: float | None = required("Units/s now.")
    eta_seconds: float | None
    waiting_because: str | None = required("Why it does not run now.")
    error: str | None
    root: str | None = optional("Of a skipped job: the job that failed or was cancelled; retry of that brings it back.")
    in_backlog: bool | None = optional("True: it is queued until a cap of its tenant admits it.")
    max_running: int | None = optional("Most lanes that compute it at once, where that is limited.")
    timeout_seconds: float | None = optional("It fails this long after it started, where that is limited.")
    notify: str | None = optional("Where a webhook goes at its end; of its path no more than that there is one.")
    trace_id: str | None = optional("Of the trace in which it was submitted, if any: docs/tracing.md.")
    usage: Usage


class Related(Answer):
    """A job before or after another."""

    job_id: str
    state: JobState | None = required("null: it is gone.")


class Parent(Related):
    needed: Literal["done", "ended"] = required("What the job needs of it: after or after_any.")
    met: bool = required("The job waits for it no longer.")


class Relations(Answer):
    """Jobs before and after one."""

    job_id: str
    parents: list[Parent] = required("In the order of its submission.")
    children: list[Related] = required("Blocked jobs that come after it: the first 1,000.")
    children_count: int
    skipped: list[Related] = required("Jobs that were skipped because of it, also through others: 1,000 of them.")
    skipped_count: int
    root: str | None = optional("Of a skipped job: the job because of which it was.")


class Task(Job):
    task_id: str = required("The same as job_id.")


class Tasks(Answer):
    tasks: list[Task]


class QueueCounts(Answer):
    tasks: dict[str, int] = required("Jobs that are kept, by state.")


class DeadRange(Answer):
    """Units that were given up: their lanes died, or the kernel raised, more often than is tried."""

    first: int | str
    last: int | str
    deaths: int = required("Lanes that died on them.")
    errors: int = required("Times that the kernel raised.")
    error: str = required("The last error; empty where none is known.")


class Dead(Answer):
    """A job with units that were given up."""

    job_id: str
    type: str
    state: JobState
    tenant: str
    ranges: list[DeadRange]
    more_ranges: int | None = optional("Ranges besides, which are not in this answer.")


class DeadJobs(Answer):
    jobs: list[Dead]


class Unit(Answer):
    """One unit of a program, by its last attempt."""

    unit: int
    state: UnitState
    exit: int | None = required("Exit code of the last attempt that ended, 128+n where signal n ended it.")
    reason: str = required("Why it failed, where that is not its exit code: timeout, memory, lost ...; else empty.")
    seconds: float | None = required("Of that attempt; of a unit that runs, since it was leased.")
    attempts: int = required("Attempts, the one that runs too.")
    worker: str | None
    value: Any = required('What it wrote to CLUSTER_RESULT; {"artifact": true}: that is in its artifact.')
    error: str | None
    artifact: str | None = required("Id of the artifact that has its log and its outputs.")


class Units(Answer):
    """Units of a program, by their numbers."""

    total: int
    counts: dict[UnitState, int] = required("Units by state.")
    units: list[Unit]


class UnitStates(Answer):
    total: int
    runs: list[tuple[int, int, UnitState]] = required("[lo, hi, state] of the units lo..hi-1, all units.")


class Jobs(Answer):
    """Jobs, newest first."""

    jobs: list[Job]
    cursor: str | None = required("Asks for the next page; null on the last.")


class Result(Answer):
    job_id: str
    type: str
    partial: bool
    units: int | str = required("Units that the result covers.")
    total: int | str
    result: Any = required("As the kind's README says.")


class ManyResults(Answer):
    """One answer each, in the order of the ids."""

    class One(Answer):
        job_id: str
        state: JobState | None
        type: str | None = optional("Of a job that exists.")
        result: Any = optional("Once it is done.")
        result_at: str | None = optional("Where to ask for a result that did not fit into this answer.")
        result_bytes: int | None = optional("How long that result is.")
        error: str | None = optional("When it failed, or does not exist.")

    answers: list[One]


class Asked(Answer):
    """The answer is still being computed; Location says where it will be."""

    job_id: str
    status: JobState


class MarkRange(Answer):
    first: int | str
    last: int | str


class Mark(Answer):
    type: str
    mark: str
    summary: str
    origin: int | str
    up_to: int | str | None = required("Everything from the origin to here.")
    ranges: list[MarkRange]
    more_ranges: int


class Kind(Answer):
    type: str
    summary: str
    model_version: int
    devices: list[str] = required("Devices whose workers compute it: cpu and gpu, or runner.")
    parameters_schema: dict[str, Any] = Field(alias="schema", description="JSON Schema of the parameters.")
    result_schema: dict[str, Any] | None = optional("JSON Schema of the result, where the kind has one.")
    example: dict[str, Any]
    questions: dict[str, str] = required("What GET /api/jobs/{id}/NAME.json answers about a job of this kind.")
    binaries: dict[str, str] = required("What GET /api/jobs/{id}/NAME.bin holds, and its columns.")


class Kinds(Answer):
    kinds: list[Kind]
