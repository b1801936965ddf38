"""Types of responses about jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import Field

from threads_protocol.answers.fields import Answer, Count, Id, Many, Moment, Problem, State, Whole, describe, one_of

UnitStateName: TypeAlias = Literal["waiting", "running", "done", "retrying", "dead"]
UnitState: TypeAlias = Annotated[str, one_of(UnitStateName)]


#: Time until the start of a job, which submissions, estimates and jobs share.
Wait: TypeAlias = Annotated[
    float | None,
    describe(
        "Estimated seconds until the job starts; null if unknown, for example because no live worker serves its queue, "
        "its tenant has reached a limit, or it waits for other jobs or for programs."
    ),
]


class Submitted(Answer):
    job_id: Id
    status: State
    estimated_wait_seconds: Wait
    notes: Many[str]
    result: NotRequired[Annotated[Any, describe("Result of a job that finished within wait_seconds.")]]


class Estimate(Answer):
    queue: str
    estimated_wait_seconds: Wait
    unschedulable: Annotated[
        str | None, describe("Why no live runner could ever take the program; null if one could, or for other jobs.")
    ]
    notes: Many[str]


class Refused(Answer):
    error: Problem


class SubmittedBatch(Answer):
    answers: Annotated[Many[Submitted | Refused], describe("One response for each submission, in the same order.")]


class Share(Answer):
    """Work that one worker has done for a job."""

    device: str
    units: Count
    seconds: Annotated[float, describe("Total time of the worker's lanes in seconds.")]
    leases: Count
    device_seconds: NotRequired[
        Annotated[float, describe("GPU time in seconds, divided among leases that ran at the same time.")]
    ]
    joules: NotRequired[
        Annotated[
            float,
            describe(
                "Energy of the GPU or of the CPU packages in joules, divided among leases that ran at the same time."
            ),
        ]
    ]


class Usage(Answer):
    lane_seconds: float
    device_seconds: NotRequired[Annotated[float, describe("GPU time in seconds.")]]
    joules: NotRequired[
        Annotated[float, describe("Energy in joules of devices that report it. Small jobs are not counted.")]
    ]
    leases: Count
    expired_leases: Count
    workers: dict[str, Share]


class Job(Answer):
    job_id: Id
    tenant: Annotated[str, describe("Tenant that owns the job.")]
    type: str
    title: Annotated[
        str, describe("Display name of up to 80 characters: the job's name, or a title derived from the parameters.")
    ]
    state: State
    priority: str
    device: str
    queue: str
    parameters: dict[str, Any]
    notes: Many[str]
    created: Annotated[Moment, describe("Time of submission, in RFC 3339 and UTC.")]
    started: Moment | None
    ended: Moment | None
    seconds: Annotated[float | None, describe("Running time in seconds, until now or until the job ended.")]
    progress: Annotated[float, describe("0..1")]
    done: Whole
    total: Whole
    rate: Annotated[float | None, describe("Current units per second.")]
    eta_seconds: float | None
    waiting_because: Annotated[str | None, describe("Why the job is not running now.")]
    estimated_wait_seconds: NotRequired[Annotated[Wait, describe("Of a queued job; see POST /api/submit.")]]
    error: str | None
    root: NotRequired[
        Annotated[
            str,
            describe(
                "For a skipped job: the failed or cancelled job that caused it. Retrying that job restores this one."
            ),
        ]
    ]
    in_backlog: NotRequired[
        Annotated[bool, describe("True if the job is queued until a cap of its tenant allows it to run.")]
    ]
    max_running: NotRequired[
        Annotated[Count, describe("Maximum number of lanes that compute the job at once, if limited.")]
    ]
    timeout_seconds: NotRequired[Annotated[float, describe("Seconds after its start when the job fails, if limited.")]]
    notify: NotRequired[Annotated[str, describe("Webhook URL for the end of the job. Its path is hidden.")]]
    name: NotRequired[Annotated[str, describe("Name that the submitter chose, if any.")]]
    tags: NotRequired[Annotated[Many[str], describe("Tags that the submitter chose, if any.")]]
    trace_id: NotRequired[Annotated[str, describe("Trace in which the job was submitted, if any: docs/tracing.md.")]]
    usage: Usage


class Related(Answer):
    """A job on which another job depends, or a job that depends on another job."""

    job_id: Id
    state: Annotated[State | None, describe("State of the job; null if it was deleted.")]


class Parent(Related):
    needed: Annotated[
        str,
        one_of(Literal["done", "ended"]),
        describe("Required state of the parent: done (after) or ended (after_any)."),
    ]
    met: Annotated[bool, describe("True if the job no longer waits for this parent.")]


class Relations(Answer):
    """Jobs on which a job depends, and jobs that depend on it."""

    job_id: Id
    parents: Annotated[Many[Parent], describe("Parents in the order of the submission.")]
    children: Annotated[Many[Related], describe("Blocked jobs that depend on this one, up to 1,000.")]
    children_count: Count
    skipped: Annotated[
        Many[Related], describe("Jobs skipped because of this job, directly or indirectly, up to 1,000.")
    ]
    skipped_count: Count
    root: NotRequired[Annotated[str, describe("For a skipped job: the job that caused it.")]]


class Task(Job):
    task_id: Annotated[Id, describe("Same as job_id.")]


class Tasks(Answer):
    tasks: Many[Task]


class QueueCounts(Answer):
    tasks: Annotated[dict[str, Count], describe("Stored jobs by state.")]


class DeadRange(Answer):
    """Units that failed permanently, because their lanes died or their kernel raised too many exceptions."""

    first: Whole
    last: Whole
    deaths: Annotated[Count, describe("Number of lanes that died while computing the units.")]
    errors: Annotated[Count, describe("Number of exceptions that the kernel raised.")]
    error: Annotated[str, describe("Last error; empty if unknown.")]


class Dead(Answer):
    """A job with units that failed permanently."""

    job_id: Id
    type: str
    state: State
    tenant: str
    ranges: Many[DeadRange]
    more_ranges: NotRequired[Annotated[Count, describe("Number of further ranges, which this response omits.")]]


class DeadJobs(Answer):
    jobs: Many[Dead]


class Unit(Answer):
    """One unit of a program. The fields describe its last attempt."""

    unit: Count
    state: UnitState
    exit: Annotated[int | None, describe("Exit code of the last finished attempt, 128+n if signal n killed it.")]
    reason: Annotated[
        str, describe("Why the unit failed, other than by its exit code: timeout, memory, lost ...; else empty.")
    ]
    seconds: Annotated[
        float | None, describe("Duration of the last attempt in seconds. For a running unit, time since it was leased.")
    ]
    attempts: Annotated[Count, describe("Number of attempts, including the running one.")]
    worker: str | None
    value: Annotated[
        Any,
        describe(
            'Value that the unit wrote to CLUSTER_RESULT; {"artifact": true} if the unit\'s artifact contains it.'
        ),
    ]
    error: str | None
    artifact: Annotated[str | None, describe("ID of the artifact with the unit's log and output files.")]


class Units(Answer):
    """Units of a program, in numeric order."""

    total: Count
    counts: Annotated[dict[UnitState, Count], describe("Number of units by state.")]
    units: Many[Unit]


#: Range of units with the same state, as [lo, hi, state].
UnitRun: TypeAlias = Annotated[tuple[Count, Count, UnitState], Field(strict=False)]


class UnitStates(Answer):
    total: Count
    runs: Annotated[Many[UnitRun], describe("Runs [lo, hi, state] of units lo to hi-1, which cover all units.")]


class Jobs(Answer):
    """A list of jobs, newest first."""

    jobs: Many[Job]
    cursor: Annotated[str | None, describe("Cursor of the next page; null on the last page.")]
    matching: NotRequired[Annotated[Count, describe("Number of jobs that match, on all pages.")]]
    total: NotRequired[Annotated[Count, describe("Number of jobs that the same token can list without conditions.")]]


class ResultHead(Answer):
    """Properties of a result, without the result itself."""

    job_id: Id
    type: str
    partial: bool
    units: Annotated[Whole, describe("Number of units that the result covers.")]
    total: Whole


class Result(ResultHead):
    result: Annotated[Any, describe("Result in the format described by the kind's README.")]


class One(Answer):
    job_id: str
    state: State | None
    type: NotRequired[Annotated[str | None, describe("Kind of the job, if it exists.")]]
    result: NotRequired[Annotated[Any, describe("Result of the job, once it is done.")]]
    result_at: NotRequired[Annotated[str, describe("URL of a result that is too large for this response.")]]
    result_bytes: NotRequired[Annotated[Count, describe("Size of that result in bytes.")]]
    error: NotRequired[Annotated[str, describe("Error of a failed or nonexistent job.")]]


class ManyResults(Answer):
    """Results of several jobs, in the order of the request."""

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
    up_to: Annotated[Whole | None, describe("Largest integer up to which everything from the origin is covered.")]
    ranges: Many[MarkRange]
    more_ranges: Count


class Kind(Answer):
    type: str
    summary: str
    model_version: Count
    devices: Annotated[Many[str], describe("Devices whose workers compute the kind: cpu and gpu, or runner.")]
    schema: Annotated[dict[str, Any], describe("JSON Schema of the parameters.")]
    result_schema: NotRequired[Annotated[dict[str, Any], describe("JSON Schema of the result, if the kind has one.")]]
    example: dict[str, Any]
    questions: Annotated[
        dict[str, str],
        describe("Questions that GET /api/jobs/{id}/NAME.json answers for jobs of this kind, with descriptions."),
    ]
    binaries: Annotated[
        dict[str, str], describe("Binary files that GET /api/jobs/{id}/NAME.bin returns, with their columns.")
    ]


class Kinds(Answer):
    kinds: Annotated[Many[Kind], Field(max_length=1000)]
