"""What the API answers, for its description and the tests; nothing is validated on its way out.

An integer that can pass 2^53 is a number up to there and a decimal string beyond.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from jobs.models import JobState


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


def told(text: str) -> Any:
    """A field that is always there."""
    return Field(description=text)


def may(text: str) -> Any:
    """A field that is left out where it is not known."""
    return Field(default=None, description=text or None)


class Problem(BaseModel):
    """RFC 9457: what went wrong, why, and which field of the request it is about."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None


# -- jobs -----------------------------------------------------------------------------------------------------------


class Submitted(Answer):
    job_id: str
    status: JobState
    estimated_wait_seconds: float | None = told("null: no live worker serves the job's queue.")
    notes: list[str]
    result: Any = may("Of a job that was done within wait_seconds.")


class Refused(Answer):
    error: Problem


class SubmittedBatch(Answer):
    answers: list[Submitted | Refused] = told("One for each submission, in their order.")


class Share(Answer):
    """What one worker did for a job."""

    device: str
    units: int
    seconds: float = told("Of its lanes.")
    leases: int
    device_seconds: float | None = may("Of a GPU, shared by the leases that ran at once.")
    joules: float | None = may("Energy while its leases ran, shared by them: of the GPU, or of the CPU packages.")


class Usage(Answer):
    lane_seconds: float
    device_seconds: float | None = may("Of GPUs.")
    joules: float | None = may("Of the devices that tell; small jobs are not counted.")
    leases: int
    expired_leases: int
    workers: dict[str, Share]


class Job(Answer):
    job_id: str
    type: str
    state: JobState
    priority: str
    device: str
    queue: str
    parameters: dict[str, Any]
    notes: list[str]
    created: str = told("RFC 3339, UTC.")
    started: str | None
    ended: str | None
    seconds: float | None = told("Since it started, or until it ended.")
    progress: float = told("0..1")
    done: int | str
    total: int | str
    rate: float | None = told("Units/s now.")
    eta_seconds: float | None
    waiting_because: str | None = told("Why it does not run now.")
    error: str | None
    usage: Usage


class Jobs(Answer):
    """Newest first."""

    jobs: list[Job]
    cursor: str | None = told("Asks for the next page; null on the last.")


class Result(Answer):
    job_id: str
    type: str
    partial: bool
    units: int | str = told("Units that the result covers.")
    total: int | str
    result: Any = told("As the kind's README says.")


class ManyResults(Answer):
    """One answer each, in the order of the ids."""

    class One(Answer):
        job_id: str
        state: JobState | None
        type: str | None = may("Of a job that exists.")
        result: Any = may("Once it is done.")
        result_at: str | None = may("Where to ask for a result that did not fit into this answer.")
        result_bytes: int | None = may("How long that result is.")
        error: str | None = may("When it failed, or does not exist.")

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
    up_to: int | str | None = told("Everything from the origin to here.")
    ranges: list[MarkRange]
    more_ranges: int


class Kind(Answer):
    type: str
    summary: str
    model_version: int
    parameters_schema: dict[str, Any] = Field(alias="schema", description="JSON Schema of the parameters.")
    example: dict[str, Any]
    questions: dict[str, str] = told("What GET /api/jobs/{id}/NAME.json answers about a job of this kind.")
    binaries: dict[str, str] = told("What GET /api/jobs/{id}/NAME.bin holds, and its columns.")


class Kinds(Answer):
    kinds: list[Kind]


# -- the fleet ------------------------------------------------------------------------------------------------------


class Gpu(BaseModel):
    """What a worker says of a GPU; what it does not know is left out."""

    model_config = ConfigDict(extra="allow")

    uuid: str
    index: int | None = may("On its host.")
    name: str | None = may("The model's.")
    utilization_ratio: float | None = may("0..1")
    sm_active_ratio: float | None = may("0..1")
    memory_used_bytes: int | None = may("")
    memory_total_bytes: int | None = may("")
    temperature_celsius: float | None = may("")
    power_watts: float | None = may("")
    energy_joules_total: float | None = may("")
    clock_sm_hertz: float | None = may("")
    clock_memory_hertz: float | None = may("")
    pcie_receive_bytes_per_second: float | None = may("")
    pcie_transmit_bytes_per_second: float | None = may("")
    throttle_reasons: list[str] | None = may("")


class FleetGpu(Gpu):
    node: str
    live: bool = told("Whether its worker lives.")
    job: str | None = told("The job that its worker holds: null and utilization 0 is a GPU allocated and idle.")


class Node(Answer):
    id: str
    device: str | None
    state: str = told("starting, idle, busy, draining, drained, stopped or lost.")
    live: bool
    lanes: int
    busy_lanes: int
    job: str | None = told("The job whose ranges it leases.")
    host: str | None
    draining: bool
    seen_seconds_ago: float
    cpu_ratio: float = told("0..1, of the whole host.")
    rates: dict[str, float] = told("Units/s of a lane, by kind.")
    cpus: int | None = may("")
    memory_used_bytes: int | None = may("")
    memory_total_bytes: int | None = may("")
    network_receive_bytes_total: int | None = may("")
    network_transmit_bytes_total: int | None = may("")
    pid: int | None = may("")
    gpus: list[Gpu] | None = may("")
    retired: str | None = may("Why a worker ended whose device failed.")
    cpu_energy_joules_total: float | None = may("Of the CPU packages since the worker began, where it may be read.")


class Nodes(Answer):
    nodes: list[Node]


class Drained(Answer):
    id: str
    draining: bool


class Workers(Answer):
    live: int
    ready: int
    cpu: dict[str, int] = told("Live ones by state.")
    gpu: dict[str, int]


class Status(Answer):
    version: str
    cluster_size: int | None = told("Workers wanted.")
    workers: Workers
    lanes: int
    jobs: dict[JobState, int]
    queues: dict[str, int] = told("Jobs that wait, by queue; empty ones are left out.")
    oldest_wait_seconds: float
    units_per_second: dict[str, float] = told("By kind, over the jobs that run.")


class Queue(Answer):
    queue: str
    jobs: int
    bells: int
    oldest_wait_seconds: float


class Alert(Answer):
    id: str = told("rule/subject")
    rule: str
    subject: str = told("What it is about: a queue, a worker, a kind; empty for the cluster.")
    severity: Literal["warning", "critical"]
    state: Literal["firing", "resolved"]
    since: str
    until: str | None = told("When it was over.")
    value: float = told("The latest while firing, the last before it was over.")
    threshold: float
    unit: str = told("Of both.")
    text: str


class Snapshot(Jobs):
    """The fleet at one moment; the newest 100 jobs."""

    stream: str = told("Last-Event-ID from which /api/events goes on without a gap.")
    status: Status
    queues: list[Queue]
    nodes: list[Node]
    gpus: list[FleetGpu]
    alerts: list[Alert]


class Bins(Answer):
    """A figure's bins; null where nothing is known."""

    min: list[float | None]
    mean: list[float | None]
    max: list[float | None]


class History(Answer):
    """Bins that began after `from`, in seconds since 1970 of Redis' clock; bin i covers times[i] + step_seconds."""

    begins: int = Field(alias="from")
    to: int
    step_seconds: int
    times: list[int]
    series: dict[str, Bins]
    names: list[str] = told("Every figure that there is.")


class StreamLane(Answer):
    lane: str
    worker: str
    device: str | None


class Span(Answer):
    """Leases of one lane that followed each other, of one job or, if small, of jobs of one kind."""

    lane: int = told("Its number in lanes.")
    job_id: str | None = told("null: several jobs.")
    type: str | None = told("null: of several kinds.")
    jobs: int = told("One that came again is counted again.")
    start: float = told("Seconds since 1970.")
    end: float
    busy_seconds: float = told("Computing, as the lane measured it; unknown while open.")
    units: int | str
    leases: int
    open: bool = told("Being computed: it ends now.")


class Stream(Answer):
    """Which lane computed what; nothing is left out: too many spans are joined to longer ones."""

    begins: float = Field(alias="from")
    to: float
    complete_since: float = told("Spans that ended before this moment are no longer kept.")
    resolution_seconds: float = told("0: every span by itself; else spans of a lane within this time are joined.")
    lanes: list[StreamLane]
    spans: list[Span]


class Health(Answer):
    status: Literal["ok"]
    version: str


class Ready(Answer):
    status: Literal["ready"]
