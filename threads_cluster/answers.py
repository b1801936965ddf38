"""Fields of the API's answers that the client relies on; it ignores all others."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, ValidationError, model_validator

from threads_cluster.errors import UnexpectedAnswer

Checked = TypeVar("Checked")
Element = TypeVar("Element")

Id: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$", max_length=200)]
#: A number up to 2^53, decimal digits beyond.
Whole: TypeAlias = Annotated[int, Field(ge=0, le=2**64)] | Annotated[str, Field(pattern="^[0-9]{1,40}$")]
Count: TypeAlias = Annotated[int, Field(ge=0, le=2**64)]
Many: TypeAlias = Annotated[list[Element], FailFast()]


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a moment has a time zone")
    return text


Moment: TypeAlias = Annotated[str, AfterValidator(_moment)]


class Answer(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


# -- what the library reads --------------------------------------------------------------------------------------------


class Anything(Answer):
    """An object."""


class Submitted(Answer):
    job_id: Id
    status: str


class State(Answer):
    state: str


class Event(Answer):
    state: str | None = None


class Attachment(Answer):
    unit_state: str


class AttachmentInput(Answer):
    state: str
    upto: Count


class AttachmentOutput(Answer):
    state: str
    exit: int | None
    reason: str
    worker: str
    unit_state: str
    upto: Count
    chunks: list[list[str]]


class Result(Answer):
    result: Any


class AuditPart(Answer):
    lines: Many[str]


class Batch(Answer):
    answers: Many[dict[str, Any]]


class Page(Answer):
    jobs: Many[dict[str, Any]]
    cursor: str | None = None


class WorkerList(Answer):
    workers: Many[dict[str, Any]]


class HostList(Answer):
    hosts: Many[Host]


class Usages(Answer):
    usage: Many[dict[str, Any]]


class TenantUsage(Answer):
    tenant: str
    day: str
    lane_seconds: dict[str, float]
    units: dict[str, Whole]
    jobs: dict[str, Whole]
    device_seconds: float
    joules: float | None
    requests: dict[str, Whole] = {}
    answer_tokens: dict[str, Whole] = {}


class Tenant(Answer):
    tenant: str
    weight: Count
    max_lanes: Count | None = None
    max_jobs: Count | None = None
    lanes: Count = 0
    jobs: Count = 0
    backlog: Count = 0
    max_units: dict[str, Whole] = {}
    units_today: dict[str, Whole] = {}
    max_gpu_seconds: Count | None = None
    gpu_seconds_today: float = 0.0
    max_stored_bytes: Count | None = None
    stored_bytes: Count = 0
    requires: Many[str] = []


class TenantList(Answer):
    tenants: Many[dict[str, Any]]


class DeadRange(Answer):
    first: Whole
    last: Whole
    deaths: Count = 0
    errors: Count = 0
    error: str = ""


class Dead(Answer):
    """A job with units that were given up."""

    job_id: Id
    ranges: list[DeadRange]
    more_ranges: Count = 0


class DeadJobs(Answer):
    jobs: Many[dict[str, Any]]


class KindList(Answer):
    kinds: Many[dict[str, Any]] = Field(max_length=1000)


class Asked(Answer):
    """The answer to a question is still being computed, by a job."""

    job_id: Id


# -- what the command shows besides ---------------------------------------------------------------------------------


class Notes(Answer):
    """Notes and the estimated wait of a submission."""

    notes: list[str] = []
    estimated_wait_seconds: float | None = None


class Share(Answer):
    device: str | None = None
    units: Whole | None = None
    leases: Count | None = None
    seconds: float | None = None


class Usage(Answer):
    workers: dict[str, Share] | None = None


class Acted(Answer):
    job_id: Id
    state: str


class Job(Acted):
    type: str
    title: str | None = None
    tenant: str | None = None
    done: Whole
    total: Whole
    parameters: dict[str, Any]
    notes: list[str] = []
    priority: str | None = None
    device: str | None = None
    queue: str | None = None
    created: Moment | None = None
    started: Moment | None = None
    ended: Moment | None = None
    seconds: float | None = None
    progress: float | None = None
    rate: float | None = None
    eta_seconds: float | None = None
    waiting_because: str | None = None
    error: str | None = None
    max_running: Count | None = None
    timeout_seconds: float | None = None
    usage: Usage | None = None


class Related(Answer):
    job_id: Id
    state: str | None = None


class Parent(Related):
    needed: str
    met: bool


class Relations(Answer):
    """Jobs before and after one."""

    parents: Many[Parent]
    children: Many[Related]
    children_count: Count
    skipped: Many[Related]
    skipped_count: Count
    root: str | None = None


class Worker(Answer):
    id: str
    device: str | None = None
    state: str | None = None
    lanes: Count | None = None
    job: str | None = None
    host: str | None = None
    draining: bool | None = None
    seen_seconds_ago: float = 0.0
    cpu_ratio: float | None = None
    cpu_level: str | None = None
    memory_used_bytes: Count | None = None
    live: bool | None = None
    cordoned: str | None = None
    refused: str | None = None


class Host(Answer):
    host: str
    live: bool
    workers: Many[str]
    lanes: Count
    busy_lanes: Count
    draining: bool = False
    seen_seconds_ago: float = 0.0
    cpus: Count | None = None
    cpu_ratio: float | None = None
    memory_used_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    gpus: Many[str] = []
    labels: Many[str] = []
    given_labels: Many[str] = []
    cards: Many[Card] = []
    load1: float | None = None
    network_receive_bytes_per_second: float | None = None
    network_transmit_bytes_per_second: float | None = None
    disks: Many[Disk] = []
    devices: Many[Device] = []
    versions: dict[str, list[str]] = {}
    clock_offset_seconds: float | None = None
    score: float | None = None


class Card(Answer):
    card: str
    name: str
    utilization_ratio: float | None = None
    memory_used_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None


class Disk(Answer):
    places: list[str]
    free_bytes: Count
    total_bytes: Count


class Device(Answer):
    name: str
    worker: str
    idle: bool
    job: str | None = None
    index: int | None = None
    utilization_ratio: float | None = None
    memory_used_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    temperature_celsius: float | None = None
    cordoned: str | None = None
    power_watts: float | None = None


class HostDetail(Host):
    worker_rows: Many[Worker]


class Kind(Answer):
    type: str
    summary: str
    parameters_schema: dict[str, Any] = Field(alias="schema")


class Workers(Answer):
    """By device, besides their number."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, Count | dict[str, Count]]

    live: Count


class Status(Answer):
    version: str
    workers: Workers
    cluster_size: Count | None = None
    desired_workers: dict[str, Count] = {}
    lanes: Count = 0
    jobs: dict[str, Count]
    queues: dict[str, Count] = {}
    oldest_wait_seconds: float | None = None
    units_per_second: dict[str, float] = {}


class MetricSample(Answer):
    name: str
    labels: dict[str, str]
    value: float


class Metric(Answer):
    name: str
    type: str
    help: str
    samples: Many[MetricSample]


class Metrics(Answer):
    metrics: Many[Metric]


class Drained(Answer):
    draining: bool


class Version(Answer):
    version: str


class Trace(Answer):
    """Trace of one replica, in the form that Perfetto reads."""

    traceEvents: Many[dict[str, Any]]  # noqa: N815 - the format's name


class Traced(Answer):
    """Job, as far as its trace needs it."""

    job_id: Id
    type: str
    state: str
    created: Moment
    started: Moment | None = None
    ended: Moment | None = None


class LaneSpan(Answer):
    lane: Count
    job_id: str | None
    type: str | None
    start: Annotated[float, Field(ge=0)]
    end: Annotated[float, Field(ge=0)]
    busy_seconds: Annotated[float, Field(ge=0)]
    units: Whole | None
    leases: Count
    open: bool
    lost: bool = False


class SpanLane(Answer):
    lane: str
    worker: str
    device: str | None


class Stream(Answer):
    """Spans of work by lane."""

    to: float
    complete_since: float
    resolution_seconds: Annotated[float, Field(ge=0)]
    lanes: Many[SpanLane]
    spans: Many[LaneSpan]

    @model_validator(mode="after")
    def _lanes_are_there(self) -> Stream:
        if any(span.lane >= len(self.lanes) for span in self.spans):
            raise ValueError("a span is of a lane that is not listed")
        if any(span.units is None and span.job_id is not None for span in self.spans):
            raise ValueError("a span of a job has no units")
        return self


class Span(Answer):
    first: Whole
    last: Whole


class Mark(Answer):
    mark: str
    origin: Whole
    up_to: Whole | None
    ranges: Many[Span]


class Partial(Answer):
    """A result, whole or partial."""

    job_id: Id
    partial: bool | None = None
    units: Whole | None = None
    total: Whole | None = None
    result: Any


class Session(Answer):
    """Who asks."""

    tenant: str
    token_id: str | None
    scopes: Many[str]


class Token(Answer):
    id: str
    name: str
    tenant: str
    scopes: Many[str]
    created: str
    expires: str | None
    used: str | None
    labels: Many[str] = []


class TokenList(Answer):
    tokens: Many[Token]


class CreatedToken(Answer):
    token: str
    id: str
    tenant: str
    scopes: Many[str]
    expires: str | None


class LoginCode(Answer):
    path: str
    seconds: Whole


class Secret(Answer):
    tenant: str
    name: str
    changed: str
    key: str
    readable: bool


class SecretList(Answer):
    secrets: Many[Secret]


class Artifact(Answer):
    artifact_id: str
    names: list[str]
    files: int
    bytes: int
    created: Moment


class ArtifactPage(Answer):
    artifacts: list[Artifact]
    cursor: str | None = None


class Committed(Answer):
    artifact: Artifact
    new: bool


class MissingFiles(Answer):
    missing: list[str]
    parts: dict[str, list[int]]
    part_bytes: int
    bundle_files: int
    bundle_bytes: int


class Unit(Answer):
    unit: Count
    state: str
    exit: int | None = None
    reason: str | None = None
    seconds: float | None = None
    attempts: Count = 0
    worker: str | None = None
    value: Any = None
    error: str | None = None
    artifact: str | None = None


class UnitPage(Answer):
    total: Whole
    counts: dict[str, Count]
    units: Many[Unit]


class Output(Answer):
    """Some output of a unit, how much was left out, or its end: `data`, `bytes` or `state` tell."""

    offset: Count = 0
    stream: Literal["stdout", "stderr"] = "stdout"
    data: str | None = None
    attempt: Count = 1
    run: str | None = None
    state: str | None = None


class QueueCounts(Answer):
    tasks: dict[str, Count]


class Tasks(Answer):
    tasks: Many[dict[str, Any]]


class Schedule(Answer):
    name: str
    tenant: str
    type: str
    every_seconds: int | None
    cron: str | None
    timezone: str
    state: str
    next_run: Moment | None
    last_run: Moment | None
    last_job_id: str | None
    last_workflow_id: str | None = None
    last_workflow_state: str | None = None
    last_outcome: str | None
    submitted: Count
    skipped: Count
    missed: Count
    failed: Count
    next_runs: list[Moment] = []
    job: dict[str, Any] | None = None
    workflow: str | None = None


class ScheduleList(Answer):
    schedules: Many[Schedule]


class ProfileRecording(Answer):
    name: str
    worker: str
    host: str
    devices: list[str]
    state: str
    samples: Count
    missed: Count
    seconds: float
    bytes: Count
    cpu_seconds: float
    ended: str | None


class Profile(Answer):
    name: str
    state: str
    hz: Count
    hosts: list[str]
    job_id: str | None
    created: Moment
    ends: Moment
    ended: Moment | None
    artifact_id: Id | None
    trouble: str | None
    samples: Count
    missed: Count
    bytes: Count
    recordings: Many[ProfileRecording]


class ProfileList(Answer):
    profiles: Many[Profile]


class Replica(Answer):
    job_id: str
    state: str
    because: str | None = None
    worker: str | None = None
    requests: Count = 0


class Memory(Answer):
    words: str


class AskedService(Answer):
    memory: Memory | None = None


class Service(Answer):
    name: str
    tenant: str
    engine: str
    model: str | None = None
    state: str
    replicas: Count
    ready: Count
    failures: Count
    next_start: Moment | None = None
    last_failure: str | None = None
    running: Many[Replica]
    last_dead_job_id: str | None = None
    asked: AskedService | None = None


class ServiceList(Answer):
    services: Many[Service]


class Engine(Answer):
    engine: str
    summary: str
    routes: str
    large: bool
    packages: str


class EngineList(Answer):
    engines: Many[Engine]


class Access(Answer):
    job_id: str
    address: str
    port: int
    certificate: str
    private_key: str


class PageLink(Answer):
    url: str
    seconds: int | None


class Model(Answer):
    model_name: str
    type: str
    source: str
    status: str
    bytes: Count
    locations: Many[str]
    weights: Many[str]
    services: Many[str]
    artifact_id: str
    created: Moment


class ModelPage(Answer):
    models: Many[Model]
    cursor: str | None = None


class Chunk(Answer):
    chunk_id: str
    device: str
    locations: Many[str]
    bytes: Count
    files: Count
    references: Count
    artifact_id: str
    created: Moment


class ChunkList(Answer):
    chunks: Many[Chunk]
    cursor: str | None = None


class ChunkBegun(Answer):
    chunk_id: str
    task_id: str


class TaskBegun(Answer):
    task_id: str


class Deployed(Answer):
    deployment_id: str
    status: str


class Inferred(Answer):
    text: str
    usage: dict[str, Any]


class Started(Answer):
    job_id: str | None
    workflow_id: str | None = None


class Delivery(Answer):
    id: str
    tenant: str
    job_id: str | None
    workflow_id: str | None = None
    type: str
    url: str
    state: str
    created: Moment
    attempts: Count
    next_attempt: Moment | None
    last_outcome: str | None


class DeliveryList(Answer):
    deliveries: Many[Delivery]
    counts: dict[str, Count]


class SigningKey(Answer):
    key: str


class Tried(Answer):
    delivered: bool
    status: int | None
    error: str | None = None
    seconds: float


class Rotated(Answer):
    key: str
    rotated: Whole
    unreadable: Many[str]


class Workflow(Answer):
    workflow_id: str
    name: str
    state: str
    attempt: Count
    created: Moment
    ended: Moment | None = None
    total: Count
    counts: dict[str, Count]
    waiting_because: str | None = None
    error: str | None = None
    notify: str | None = None


class Retried(Workflow):
    notes: list[str] = []


class Items(Answer):
    done: Count
    total: Count


class Action(Answer):
    action_id: str
    action_type: str
    state: str
    dependencies: list[str]
    after_any: list[str]
    job_id: str | None = None
    waiting_because: str | None = None
    error: str | None = None
    progress: float | None = None
    items: Items | None = None


class Course(Workflow):
    actions: Many[Action]


class WorkflowPage(Answer):
    workflows: list[Workflow]
    cursor: str | None = None


class Complaint(Answer):
    line: Count
    column: Count
    action: str
    field: str
    detail: str


class Validation(Answer):
    valid: bool
    name: str | None = None
    actions: Count
    edges: Count
    layers: Count
    problems: Many[Complaint]
    notes: Many[Complaint]
    more: Count = 0


def checked(shape: type[BaseModel], answer: Checked, url: str) -> Checked:
    """The answer as it came. UnexpectedAnswer names the first place that is not as the shape says."""
    if not isinstance(answer, dict):
        raise UnexpectedAnswer(url, "the answer is no JSON object")
    try:
        shape.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UnexpectedAnswer(url, f"{place}: {first['msg'].lower()}") from None
    return answer
