"""Responses about jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import Field

from threads_protocol.answers.fields import Answer, Count, Id, Many, Moment, Problem, State, Whole, describe, one_of

UnitStateName: TypeAlias = Literal["waiting", "running", "done", "retrying", "dead"]
UnitState: TypeAlias = Annotated[str, one_of(UnitStateName)]


class Submitted(Answer):
    job_id: Id
    status: State
    estimated_wait_seconds: Annotated[
        float | None, describe("null: no live worker serves the job's queue, or it comes after other jobs.")
    ]
    notes: Many[str]
    result: NotRequired[Annotated[Any, describe("Of a job that was done within wait_seconds.")]]


class Refused(Answer):
    error: Problem


class SubmittedBatch(Answer):
    answers: Annotated[Many[Submitted | Refused], describe("One for each submission, in their order.")]


class Share(Answer):
    """One worker's share of a job."""

    device: str
    units: Count
    seconds: Annotated[float, describe("Of its lanes.")]
    leases: Count
    device_seconds: NotRequired[Annotated[float, describe("Of a GPU, shared by the leases that ran at once.")]]
    joules: NotRequired[
        Annotated[float, describe("Energy while its leases ran, shared by them: of the GPU, or of the CPU packages.")]
    ]


class Usage(Answer):
    lane_seconds: float
    device_seconds: NotRequired[Annotated[float, describe("Of GPUs.")]]
    joules: NotRequired[Annotated[float, describe("Of the devices that tell; small jobs are not counted.")]]
    leases: Count
    expired_leases: Count
    workers: dict[str, Share]


class Job(Answer):
    job_id: Id
    tenant: Annotated[str, describe("Whose job it is.")]
    type: str
    title: Annotated[str, describe("Its name for people, made from its parameters; at most 80 characters.")]
    state: State
    priority: str
    device: str
    queue: str
    parameters: dict[str, Any]
    notes: Many[str]
    created: Annotated[Moment, describe("RFC 3339, UTC.")]
    started: Moment | None
    ended: Moment | None
    seconds: Annotated[float | None, describe("Since it started, or until it ended.")]
    progress: Annotated[float, describe("0..1")]
    done: Whole
    total: Whole
    rate: Annotated[float | None, describe("Units/s now.")]
    eta_seconds: float | None
    waiting_because: Annotated[str | None, describe("Why it does not run now.")]
    error: str | None
    root: NotRequired[
        Annotated[
            str, describe("Of a skipped job: the job that failed or was cancelled; retry of that brings it back.")
        ]
    ]
    in_backlog: NotRequired[Annotated[bool, describe("True: it is queued until a cap of its tenant admits it.")]]
    max_running: NotRequired[Annotated[Count, describe("Most lanes that compute it at once, where that is limited.")]]
    timeout_seconds: NotRequired[
        Annotated[float, describe("It fails this long after it started, where that is limited.")]
    ]
    notify: NotRequired[
        Annotated[str, describe("Where a webhook goes at its end; of its path no more than that there is one.")]
    ]
    trace_id: NotRequired[Annotated[str, describe("Of the trace in which it was submitted, if any: docs/tracing.md.")]]
    usage: Usage


class Related(Answer):
    """A job that another job depends on, or that depends on it."""

    job_id: Id
    state: Annotated[State | None, describe("null: it is gone.")]


class Parent(Related):
    needed: Annotated[str, one_of(Literal["done", "ended"]), describe("What the job needs of it: after or after_any.")]
    met: Annotated[bool, describe("The job waits for it no longer.")]


class Relations(Answer):
    """Dependencies and dependents of a job."""

    job_id: Id
    parents: Annotated[Many[Parent], describe("In the order of its submission.")]
    children: Annotated[Many[Related], describe("Blocked jobs that come after it: the first 1,000.")]
    children_count: Count
    skipped: Annotated[
        Many[Related], describe("Jobs that were skipped because of it, also through others: 1,000 of them.")
    ]
    skipped_count: Count
    root: NotRequired[Annotated[str, describe("Of a skipped job: the job because of which it was.")]]


class Task(Job):
    task_id: Annotated[Id, describe("The same as job_id.")]


class Tasks(Answer):
    tasks: Many[Task]


class QueueCounts(Answer):
    tasks: Annotated[dict[str, Count], describe("Jobs that are kept, by state.")]


class DeadRange(Answer):
    """Units that the cluster gave up because their lanes died or their kernel raised too often."""

    first: Whole
    last: Whole
    deaths: Annotated[Count, describe("Lanes that died on them.")]
    errors: Annotated[Count, describe("Times that the kernel raised.")]
    error: Annotated[str, describe("The last error; empty where none is known.")]


class Dead(Answer):
    """A job with units that the cluster gave up."""

    job_id: Id
    type: str
    state: State
    tenant: str
    ranges: Many[DeadRange]
    more_ranges: NotRequired[Annotated[Count, describe("Number of further ranges, which this answer omits.")]]


class DeadJobs(Answer):
    jobs: Many[Dead]


class Unit(Answer):
    """One unit of a program, described by its last attempt."""

    unit: Count
    state: UnitState
    exit: Annotated[int | None, describe("Exit code of the last attempt that ended, 128+n where signal n ended it.")]
    reason: Annotated[
        str, describe("Why it failed, where that is not its exit code: timeout, memory, lost ...; else empty.")
    ]
    seconds: Annotated[float | None, describe("Of that attempt; of a unit that runs, since it was leased.")]
    attempts: Annotated[Count, describe("Attempts, the one that runs too.")]
    worker: str | None
    value: Annotated[Any, describe('What it wrote to CLUSTER_RESULT; {"artifact": true}: that is in its artifact.')]
    error: str | None
    artifact: Annotated[str | None, describe("Id of the artifact that has its log and its outputs.")]


class Units(Answer):
    """Units of a program, in numeric order."""

    total: Count
    counts: Annotated[dict[UnitState, Count], describe("Units by state.")]
    units: Many[Unit]


#: Encoded as a list in JSON.
UnitRun: TypeAlias = Annotated[tuple[Count, Count, UnitState], Field(strict=False)]


class UnitStates(Answer):
    total: Count
    runs: Annotated[Many[UnitRun], describe("[lo, hi, state] of the units lo..hi-1, all units.")]


class Jobs(Answer):
    """Jobs, newest first."""

    jobs: Many[Job]
    cursor: Annotated[str | None, describe("Asks for the next page; null on the last.")]


class ResultHead(Answer):
    """Metadata of a result."""

    job_id: Id
    type: str
    partial: bool
    units: Annotated[Whole, describe("Units that the result covers.")]
    total: Whole


class Result(ResultHead):
    result: Annotated[Any, describe("As the kind's README says.")]


class One(Answer):
    job_id: str
    state: State | None
    type: NotRequired[Annotated[str | None, describe("Of a job that exists.")]]
    result: NotRequired[Annotated[Any, describe("Once it is done.")]]
    result_at: NotRequired[Annotated[str, describe("Where to ask for a result that did not fit into this answer.")]]
    result_bytes: NotRequired[Annotated[Count, describe("How long that result is.")]]
    error: NotRequired[Annotated[str, describe("When it failed, or does not exist.")]]


class ManyResults(Answer):
    """One response for each job ID, in the order of the request."""

    answers: Many[One]


class Asked(Answer):
    """The response is still being computed. Its URL is in the Location header."""

    job_id: Id
    status: State


class MarkRange(Answer):
    first: Whole
    last: Whole


class Mark(Answer):
    type: str
    mark: str
    summary: str
    origin: Whole
    up_to: Annotated[Whole | None, describe("Everything from the origin to here.")]
    ranges: Many[MarkRange]
    more_ranges: Count


class Kind(Answer):
    type: str
    summary: str
    model_version: Count
    devices: Annotated[Many[str], describe("Devices whose workers compute it: cpu and gpu, or runner.")]
    schema: Annotated[dict[str, Any], describe("JSON Schema of the parameters.")]
    result_schema: NotRequired[
        Annotated[dict[str, Any], describe("JSON Schema of the result, where the kind has one.")]
    ]
    example: dict[str, Any]
    questions: Annotated[
        dict[str, str], describe("What GET /api/jobs/{id}/NAME.json answers about a job of this kind.")
    ]
    binaries: Annotated[dict[str, str], describe("What GET /api/jobs/{id}/NAME.bin holds, and its columns.")]


class Kinds(Answer):
    kinds: Annotated[Many[Kind], Field(max_length=1000)]
