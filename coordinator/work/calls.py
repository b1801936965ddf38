"""Bodies of the calls of workers, each field within bounds. Times are durations: no clock of a worker counts."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import from_json

from jobs import queues
from jobs.hosts.labels import joined
from jobs.models import MAX_UNITS
from jobs.store import profiles
from jobs.store.work.leases import MAX_UNIT_ERROR, MAX_UNIT_ROW, MAX_WAIT_MS
from jobs.store.work.slots import TAKE

#: Bytes of a call, and values in it beside the texts that stand in base64.
MAX_BODY = 64 << 20
MAX_VALUES = 150_000
#: Bytes of calls that are read or worked on at once.
ROOM = 96 << 20
#: Seconds for which a question for work may wait.
MAX_WAIT_SECONDS = 20.0
#: Lanes of a worker; jobs that it takes at once; leases that it keeps.
MAX_LANES = 1024
MAX_TAKE = TAKE * MAX_LANES
#: Longest that a lane can have been at work on a lease, in milliseconds.
_MAX_MS = 31 * 86_400_000
#: A JSON text is read up to this size; of larger ones, which would hold up every other call, only the ends.
READ_BYTES = 1 << 20
_RANGE = re.compile(r"[0-9]{1,100}-[0-9]{1,100}")
#: Largest of the numbers in the JSON texts of a worker's row, either way.
_MOST = 2**64
#: Figures of a GPU that are numbers; what else a worker says of one may be texts.
_GPU_FIGURES = frozenset(
    {
        "index",
        "utilization_ratio",
        "sm_active_ratio",
        "memory_used_bytes",
        "memory_total_bytes",
        "temperature_celsius",
        "power_watts",
        "energy_joules_total",
        "clock_sm_hertz",
        "clock_memory_hertz",
        "pcie_receive_bytes_per_second",
        "pcie_transmit_bytes_per_second",
    }
)

#: Types of the facts of an attempt that failed which are numbers, and those that are texts.
_ROW_NUMBERS: dict[str, tuple[type, ...]] = {
    "unit": (int,),
    "attempt": (int,),
    "exit": (int, type(None)),
    "seconds": (int, float, type(None)),
}
_ROW_TEXTS = frozenset({"reason", "worker", "host", "error", "tail"})

JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="A job's id.")]
LeaseToken = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9]{1,64}$", description="A lease's token, chosen by its worker, at random.")
]
Units = Annotated[int, Field(ge=0, le=MAX_UNITS)]
Milliseconds = Annotated[int, Field(ge=0, le=_MAX_MS)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", description="SHA-1 over the SHA-1s of what was gathered.")]
Reason = Annotated[str, Field(max_length=2000, description="For people: why.")]
WorkDevice = Literal["cpu", "gpu", "runner"]


def _decoded(text: Any) -> bytes:
    """Return the bytes of a text in base64. ValueError for what is none."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)  # without copies of the text
    except (TypeError, ValueError):
        raise ValueError("must be the base64 of a JSON object") from None


def _decoded_bytes(text: Any) -> bytes:
    """Return the bytes of a text in base64. ValueError for what is none."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (TypeError, ValueError):
        raise ValueError("must be base64") from None


def _is_object(text: bytes) -> bytes:
    """Return the text. ValueError unless it is a JSON object, as JSON is defined: in UTF-8, without NaN."""
    if not (isinstance(_loaded(text), dict) if len(text) <= READ_BYTES else _has_ends(text)):
        raise ValueError("must be the base64 of a JSON object")
    return text


def _has_ends(text: bytes) -> bool:
    return text[:1] == b"{" and text[-1:] == b"}" and text.isascii()


def _are_marks(text: str) -> str:
    """Return marks as the functions store them. ValueError unless they are [kind:name, lo-hi, payload], each a text."""
    rows = _loaded(text)
    if not isinstance(rows, list) or not all(_is_mark(row) for row in rows):
        raise ValueError("must be a JSON list of [kind:name, lo-hi, payload], each a text")
    return json.dumps(rows)


def _is_mark(row: Any) -> bool:
    texts = isinstance(row, list) and len(row) == 3 and all(isinstance(part, str) for part in row)
    return texts and bool(_RANGE.fullmatch(row[1]))


def _are_integers(text: str) -> str:
    return _are_of(text, {int})


def _are_numbers(text: str) -> str:
    return _are_of(text, {int, float})


def _are_of(text: str, kinds: set[type]) -> str:
    """Return a JSON text. ValueError unless it is an object of values of these types."""
    values = _loaded(text)
    if not isinstance(values, dict) or not all(type(one) in kinds and abs(one) <= _MOST for one in values.values()):
        raise ValueError(f"must be a JSON object of {'numbers' if float in kinds else 'integers'}")
    return text


def _loaded(text: str | bytes) -> Any:
    """Return the value of a JSON text; None for what is none."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return None


def _are_gpus(text: str) -> str:
    """Return a JSON text. ValueError unless it is a list of at most 64 objects with a uuid."""
    rows = _loaded(text)
    if not isinstance(rows, list) or len(rows) > 64 or not all(_is_gpu(row) for row in rows):
        raise ValueError("must be a JSON list of at most 64 GPUs, each an object with a uuid, of figures and texts")
    return text


def _is_gpu(row: Any) -> bool:
    named = isinstance(row, dict) and isinstance(row.get("uuid"), str) and len(row["uuid"]) <= 64
    return bool(named) and all(_is_figure(value, name in _GPU_FIGURES) for name, value in row.items())


def _is_row(text: str) -> str:
    """Return a JSON text. ValueError unless it is nothing, or an object of facts, of at most MAX_UNIT_ROW bytes."""
    row = _loaded(text) if len(text) <= MAX_UNIT_ROW and len(text.encode()) <= MAX_UNIT_ROW else None
    if text and (not isinstance(row, dict) or not all(_is_fact(name, value) for name, value in row.items())):
        raise ValueError(f"must be a JSON object of at most {MAX_UNIT_ROW} bytes, of facts of one attempt")
    return text


def _is_fact(name: str, value: Any) -> bool:
    if name in _ROW_NUMBERS:
        low = -_MOST if name == "exit" else 0
        return type(value) in _ROW_NUMBERS[name] and (value is None or low <= value <= _MOST)
    return isinstance(value, str) or (name not in _ROW_TEXTS and type(value) in (int, float, bool, type(None)))


def _is_figure(value: Any, is_number: bool) -> bool:
    if type(value) in (int, float):
        return bool(abs(value) <= _MOST)
    texts = value if isinstance(value, list) else [value]
    return not is_number and all(isinstance(text, str) for text in texts)


Content = Annotated[
    bytes,
    BeforeValidator(_decoded),
    AfterValidator(_is_object),
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "description": "A JSON object in base64."}),
]
Marks = Annotated[str, Field(max_length=1 << 20), AfterValidator(_are_marks)]


class Call(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Register(Call):
    """A process begins."""


class OfferedGpu(BaseModel):
    """A GPU; whatever else a runner says of it is dropped."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: str | None = Field(None, max_length=64)
    memory_mib: int = Field(ge=0, le=1 << 30)
    compute_capability: str = Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$")


class Offer(Call):
    """Which programs a runner can take now."""

    cpus: float = Field(ge=0, le=100_000, description="Free ones, as the others.")
    memory_mib: float = Field(ge=0, le=1 << 40)
    gpus: list[OfferedGpu] = Field(default_factory=list, max_length=64)
    host: str = Field("", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    labels: list[Annotated[str, Field(max_length=64)]] = Field(default_factory=list, max_length=64)
    tenant: str = Field("", max_length=64, description="The only tenant whose jobs it may take; empty: any.")


class OfferBesideReplicas(Offer):
    """Resources that a runner has for programs while its replicas of services are running."""

    model_config = ConfigDict(extra="ignore", strict=True)

    replicas: int = Field(ge=0, le=MAX_LANES, description="Number of replicas that it can still add.")
    works_for: str = Field("", max_length=64, description="The only tenant whose jobs it takes now; empty: any.")


def _is_offer(text: str) -> str:
    """Return a JSON text. ValueError unless it is an offer."""
    return _is_offer_of(Offer, text)


def _is_offer_beside_replicas(text: str) -> str:
    return _is_offer_of(OfferBesideReplicas, text)


def _is_offer_of(model: type[Offer], text: str) -> str:
    try:
        model.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"must be a JSON offer: {error.errors()[0]['msg']}") from None
    return text


def _are_running(text: str) -> str:
    """Return a JSON text. ValueError unless it is a list of at most 64 [job, unit]."""
    rows = _loaded(text)
    sound = isinstance(rows, list) and len(rows) <= 64 and all(isinstance(row, list) for row in rows)
    if not sound or not all([type(part) for part in row] == [str, int] for row in rows):
        raise ValueError("must be a JSON list of at most 64 [job, unit]")
    return text


class Disk(BaseModel):
    """Room on a disk of a worker's machine."""

    model_config = ConfigDict(extra="forbid", strict=True)

    disk: str = Field(pattern=r"^[0-9]{1,10}:[0-9]{1,10}$")
    places: list[Annotated[str, Field(pattern=r"^[a-z]{1,32}$")]] = Field(max_length=16)
    free_bytes: int = Field(ge=0, le=MAX_UNITS)
    total_bytes: int = Field(ge=0, le=MAX_UNITS)


class Card(BaseModel):
    """A GPU of a worker's machine on which no worker computes; whatever a later version says besides is dropped."""

    model_config = ConfigDict(extra="ignore", strict=True)

    card: str = Field(pattern=r"^card[0-9]{1,3}$")
    name: str = Field(max_length=64)
    utilization_ratio: float | None = Field(None, ge=0, le=1)
    memory_used_bytes: int | None = Field(None, ge=0, le=MAX_UNITS)
    memory_total_bytes: int | None = Field(None, ge=0, le=MAX_UNITS)
    temperature_celsius: float | None = Field(None, ge=0, le=1000)
    power_watts: float | None = Field(None, ge=0, le=1e6)
    clock_hertz: float | None = Field(None, ge=0, le=1e12)


_CARDS = TypeAdapter(Annotated[list[Card], Field(max_length=16)])
_DISKS = TypeAdapter(Annotated[list[Disk], Field(max_length=16)])
_VERSIONS = TypeAdapter(
    Annotated[
        dict[Annotated[str, Field(pattern=r"^[a-z_]{1,32}$")], Annotated[str, Field(max_length=64)]],
        Field(max_length=16),
    ]
)


def _are_disks(text: str) -> str:
    """Return a JSON text. ValueError unless it is a list of at most 16 disks."""
    return _is_one(_DISKS, text, "list of at most 16 disks")


def _are_cards(text: str) -> str:
    """Return the JSON of a list of at most 16 cards, of what is known of each. ValueError for any other text."""
    _is_one(_CARDS, text, "list of at most 16 cards")
    return json.dumps([card.model_dump(exclude_none=True) for card in _CARDS.validate_json(text)])


def _are_versions(text: str) -> str:
    """Return a JSON text. ValueError unless it is an object of at most 16 versions by name."""
    return _is_one(_VERSIONS, text, "object of at most 16 versions by name")


def _is_one(sort: TypeAdapter[Any], text: str, what: str) -> str:
    try:
        sort.validate_json(text)
    except ValidationError as error:
        raise ValueError(f"must be a JSON {what}: {error.errors()[0]['msg']}") from None
    return text


class Next(Call):
    """A question for work."""

    device: WorkDevice
    lanes: int = Field(ge=1, le=MAX_LANES, description="Idle lanes.")
    take: int = Field(TAKE, ge=0, le=MAX_TAKE, description="Small jobs that it takes at most.")
    kinds: dict[Annotated[str, Field(max_length=64)], int] | None = Field(
        None,
        max_length=256,
        description="Version of each kind's model that it computes; null: any. A runner without a free slot names only"
        " kinds whose jobs never end.",
    )
    wait_seconds: float = Field(0.0, ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for work.")
    offer: Offer | None = Field(None, description="Of a runner, which gives one: what it has free.")


class Waiting(Call):
    """A question how much waits."""

    device: WorkDevice


class Lease(Call):
    """A lane asks for a range of the job that its worker holds."""

    job_id: JobId
    lease: LeaseToken
    want: int = Field(ge=1, le=MAX_UNITS, description="Units of the usual lease of this lane.")
    least: int = Field(1, ge=1, le=MAX_UNITS, description="Units of the smallest one worth its overhead.")
    lane: str = Field("0", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    rate: float = Field(0.0, ge=0, le=1e18, description="Units/s that the lane reached on this job; 0: not known.")
    higher: list[Annotated[str, Field(max_length=32)]] = Field(
        default_factory=list, max_length=len(queues.ALL), description="Queues whose work ends the worker's turn."
    )


class Commit(Call):
    """A lane has computed the units of its lease below `upto`."""

    job_id: JobId
    lease: LeaseToken
    upto: int = Field(ge=1, le=MAX_UNITS)
    partial: Content
    device: WorkDevice
    ms: Milliseconds = Field(description="Of the lane.")
    pace: float = Field(0.0, ge=0, le=1e9, description="Its speed over the kind's estimate; 0: not known.")
    device_ms: Milliseconds = Field(0, description="Its share of a device that lanes share.")
    joules: float | None = Field(None, ge=0, le=1e12, description="Its share of the device's energy.")
    keep: bool = Field(False, description="The lease goes on with the units from `upto`.")
    lo: Units | None = Field(
        None, description="The partial's first unit; needed with `keep`, and of a lease that was kept before."
    )


class FailUnit(Call):
    """The program of a lease's first unit failed; the units after it are leased next."""

    job_id: JobId
    lease: LeaseToken
    unit: Units | None = Field(None, description="The first unit of the lease; of another the call is stale.")
    error: Annotated[str, Field(max_length=MAX_UNIT_ERROR, description="For people: why.")]
    most: int = Field(ge=0, le=1000, description="Errors of the unit beyond which it is given up.")
    wait_ms: int = Field(ge=0, le=MAX_WAIT_MS, description="For which it is not leased otherwise.")
    row: Annotated[str, AfterValidator(_is_row)] = Field("", description="What is kept of this failure: a JSON object.")


class Split(Call):
    """A lease ends at a unit within it; the units from there on go to others."""

    job_id: JobId
    lease: LeaseToken
    at: Units


ProfileId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="A profile's id.")]
RecordingName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
Count = Annotated[int, Field(ge=0, le=MAX_UNITS)]


class ReportedRecording(Call):
    """A recording that the worker has."""

    name: RecordingName
    host: str = Field(pattern=r"^[A-Za-z0-9._-]{0,64}$")
    devices: list[Annotated[str, Field(max_length=128)]] = Field(max_length=65)
    samples: Count
    missed: Count
    bytes: Count
    cpu_seconds: float = Field(ge=0, le=1e9)
    seconds: float = Field(ge=0, le=1e9)
    reason: str = Field(max_length=64)
    size: int = Field(ge=0, le=profiles.MAX_BYTES, description="Bytes that are sent of it; 0: it is not ready.")
    sha: str = Field(pattern=r"^([0-9a-f]{64})?$")

    def recording(self) -> profiles.Recording:
        """Return it as the store takes it."""
        return profiles.Recording(**{**self.model_dump(), "devices": tuple(self.devices)})

    @model_validator(mode="after")
    def _what_is_sent_has_a_digest(self) -> ReportedRecording:
        if bool(self.size) != bool(self.sha):
            raise ValueError("size and sha: a recording has both, or neither")
        return self


class Profile(Call):
    """The worker claims devices to sample for a profile, and says what it has recorded."""

    profile_id: ProfileId
    devices: list[Annotated[str, Field(pattern=r"^(host|gpu):[A-Za-z0-9._-]{1,120}$")]] = Field(max_length=65)
    recordings: list[ReportedRecording] = Field(max_length=256)


class ProfilePart(Call):
    """Bytes of a recording."""

    profile_id: ProfileId
    recording: RecordingName
    number: int = Field(ge=0, le=profiles.MAX_BYTES // profiles.PART_BYTES)
    data: Annotated[
        bytes,
        BeforeValidator(_decoded_bytes),
        WithJsonSchema({"type": "string", "contentEncoding": "base64", "description": "8 MiB, but for the last."}),
    ]


class FinishedJob(Call):
    job_id: JobId
    lease: LeaseToken
    result: Content
    marks: Marks = "[]"
    ms: Milliseconds
    device_ms: Milliseconds = 0


class Done(Call):
    """Small jobs were computed to their results."""

    jobs: list[FinishedJob] = Field(min_length=1, max_length=MAX_TAKE)
    device: WorkDevice


class Return(Call):
    """A lease ends without a commit."""

    job_id: JobId
    lease: LeaseToken
    how: Literal["release", "crash", "fail"] = Field(
        description="release: untouched; crash: a lane died on it; fail: the kernel raised."
    )
    error: Reason = ""


class KeptLease(Call):
    job_id: JobId
    lease: LeaseToken
    upto: Units = Field(description="First unit that is not computed yet.")


class Row(BaseModel):
    """A worker's row. Whatever a later version says besides is dropped."""

    model_config = ConfigDict(extra="ignore", strict=True)

    device: WorkDevice
    state: Literal["starting", "parked", "idle", "busy", "draining", "drained", "stopped"]
    lanes: int = Field(ge=0, le=MAX_LANES)
    busy_lanes: int = Field(ge=0, le=MAX_LANES)
    job: str = Field(pattern=r"^[A-Za-z0-9_-]{0,64}$")
    kinds: Annotated[str, Field(max_length=16_384), AfterValidator(_are_integers)]
    rates: Annotated[str, Field(max_length=16_384), AfterValidator(_are_numbers)]
    pid: int = Field(ge=0, le=2**32)
    host: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    network: str = Field(pattern=r"^[0-9]{1,20}$")
    cpu_ratio: float = Field(ge=0, le=100)
    cpus: int = Field(ge=1, le=100_000)
    memory_used_bytes: int = Field(ge=0, le=MAX_UNITS)
    memory_total_bytes: int = Field(ge=0, le=MAX_UNITS)
    network_receive_bytes_total: int = Field(ge=0, le=2**64)
    network_transmit_bytes_total: int = Field(ge=0, le=2**64)
    network_receive_bytes_per_second: float | None = Field(None, ge=0, le=1e18)
    network_transmit_bytes_per_second: float | None = Field(None, ge=0, le=1e18)
    load1: float | None = Field(None, ge=0, le=1e9)
    disks: Annotated[str, Field(max_length=16_384), AfterValidator(_are_disks)] | None = None
    versions: Annotated[str, Field(max_length=4096), AfterValidator(_are_versions)] | None = None
    cards: Annotated[str, Field(max_length=16_384), AfterValidator(_are_cards)] | None = None
    clock: float | None = Field(None, ge=0, le=1e12)
    round_trip_seconds: float | None = Field(None, ge=0, le=1e6)
    cpu_energy_joules_total: float | None = Field(None, ge=0, le=1e18)
    cpu_level: str | None = Field(None, pattern=r"^[A-Za-z0-9_]{1,32}$")
    gpus: Annotated[str, Field(max_length=65_536), AfterValidator(_are_gpus)] | None = None
    retired: Reason | None = None
    refused: Reason | None = None
    offer: Annotated[str, Field(max_length=16_384), AfterValidator(_is_offer)] | None = None
    beside_replicas: Annotated[str, Field(max_length=16_384), AfterValidator(_is_offer_beside_replicas)] | None = None
    isolation: Literal["uid", "shared"] | None = None
    cordoned: Annotated[str, Field(max_length=300)] | None = None
    running: Annotated[str, Field(max_length=16_384), AfterValidator(_are_running)] | None = None


class Beat(Call):
    """Each second: the worker lives, and keeps its leases and its slot."""

    born: str = Field(pattern=r"^[0-9]{13}-[0-9a-f]{8}$", description="As register answered.")
    row: Row
    leases: list[KeptLease] = Field(default_factory=list, max_length=MAX_TAKE)
    slot: bool = Field(False, description="It has a slot to keep.")
    leaving: bool = Field(False, description="This is the last beat.")


class Leave(Call):
    """The worker's slot ends."""


class Gather(Call):
    """A question for the partial results of the job that the worker holds."""

    job_id: JobId
    limit: int = Field(256, ge=1, le=256, description="Parts at most.")
    start: int = Field(0, ge=0, le=255, description="Number of the first; beyond 0 without the accumulator.")


class Fold(Call):
    """An accumulator stands for all that was gathered."""

    job_id: JobId
    digest: Digest
    parts: int = Field(ge=1, le=256, description="Parts that it stands for.")
    accumulator: Content


class Finish(Call):
    """The result of what was gathered."""

    job_id: JobId
    digest: Digest
    result: Content
    marks: Marks = "[]"


class GiveUp(Call):
    """The result of what was gathered cannot be derived."""

    job_id: JobId
    digest: Digest
    error: Reason
    lease: LeaseToken | None = Field(None, description="A lane died over it, and counts once a token; null: it raised.")


GpuName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="The UUID of a GPU.")]


class Claim(Call):
    """A worker takes GPUs of its host, all or none, renews that, or gives them back."""

    gpus: list[GpuName] = Field(min_length=1, max_length=64)
    keep: bool
    priority: Literal["", "interactive", "high", "normal", "low"] = Field(
        "", description="Of what is computed there, or waits; empty for nothing."
    )

    def all(self) -> list[str]:
        """Return the GPUs that are asked for, each once, in the order of their UUIDs."""
        return sorted(set(self.gpus))


def labelled(row: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """Return a worker's row with the labels that its token gives its host, whatever it says; `row` is changed."""
    row["labels"] = joined(labels)
    for name in ("offer", "beside_replicas"):
        if name in row:
            row[name] = json.dumps(offered(json.loads(row[name]), labels))
    return row


def offered(offer: dict[str, Any], labels: Sequence[str]) -> Any:
    """Return what a runner offers, with the labels of its host among those that it says of itself."""
    return {**offer, "labels": sorted({*offer.get("labels", ()), *labels})}


def known_queues(names: list[str]) -> list[str]:
    """Return those of the names that are queues."""
    return [name for name in names if name in queues.ALL]
