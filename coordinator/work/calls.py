"""Bodies of the calls of workers, each field within bounds. Times are durations: no clock of a worker counts."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from jobs import queues
from jobs.models import MAX_UNITS
from jobs.store.slots import TAKE

#: Bytes of a call, and values in it beside the texts that stand in base64.
MAX_BODY = 64 << 20
MAX_VALUES = 150_000
#: Bytes of calls that are read or worked on at once.
ROOM = 128 << 20
#: Seconds for which a question for work may wait.
MAX_WAIT_SECONDS = 20.0
#: Lanes of a worker; jobs that it takes at once; leases that it keeps.
MAX_LANES = 1024
MAX_TAKE = TAKE * MAX_LANES
#: Longest that a lane can have been at work on a lease, in milliseconds.
_MAX_MS = 31 * 86_400_000
#: A JSON text is read up to this size; of larger ones, which would hold up every other call, only the ends.
_READ = 1 << 20
_RANGE = re.compile(r"\d{1,100}-\d{1,100}")

JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="A job's id.")]
LeaseToken = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9]{1,64}$", description="A lease's token, chosen by its worker, at random.")
]
Units = Annotated[int, Field(ge=0, le=MAX_UNITS)]
Milliseconds = Annotated[int, Field(ge=0, le=_MAX_MS)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", description="SHA-1 over the SHA-1s of what was gathered.")]
Reason = Annotated[str, Field(max_length=2000, description="For people: why.")]
WorkDevice = Literal["cpu", "gpu"]


def _decoded(text: Any) -> bytes:
    """Return the bytes of a text in base64. ValueError for what is none."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (AttributeError, ValueError):
        raise ValueError("must be the base64 of a JSON object") from None


def _is_object(text: bytes) -> bytes:
    """Return the text. ValueError unless it is a JSON object."""
    if not (isinstance(_loaded(text), dict) if len(text) <= _READ else text[:1] == b"{" and text[-1:] == b"}"):
        raise ValueError("must be the base64 of a JSON object")
    return text


def _are_marks(text: str) -> str:
    """Return marks as the scripts store them. ValueError unless they are [kind:name, lo-hi, payload], each a text."""
    rows = _loaded(text)
    if not isinstance(rows, list) or not all(_is_mark(row) for row in rows):
        raise ValueError("must be a JSON list of [kind:name, lo-hi, payload], each a text")
    return text


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
    if not isinstance(values, dict) or not all(type(one) in kinds and math.isfinite(one) for one in values.values()):
        raise ValueError(f"must be a JSON object of {'numbers' if float in kinds else 'integers'}")
    return text


def _loaded(text: str | bytes) -> Any:
    """Return the value of a JSON text; None for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _are_gpus(text: str) -> str:
    """Return a JSON text. ValueError unless it is a list of at most 64 objects with a uuid."""
    rows = _loaded(text)
    if not isinstance(rows, list) or len(rows) > 64 or not all(_is_gpu(row) for row in rows):
        raise ValueError("must be a JSON list of at most 64 GPUs, each an object with a uuid")
    return text


def _is_gpu(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("uuid"), str) and len(row["uuid"]) <= 64


def marked(marks: str) -> set[str]:
    """Return the kind:name of each mark."""
    return {row[0] for row in json.loads(marks)}


Content = Annotated[
    bytes, BeforeValidator(_decoded), AfterValidator(_is_object),
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "description": "A JSON object in base64."}),
]  # fmt: skip
Marks = Annotated[str, Field(max_length=1 << 20), AfterValidator(_are_marks)]


class Call(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Register(Call):
    """A process begins."""


class Next(Call):
    """A question for work."""

    device: WorkDevice
    lanes: int = Field(ge=1, le=MAX_LANES, description="Idle lanes.")
    take: int = Field(TAKE, ge=0, le=MAX_TAKE, description="Small jobs that it takes at most.")
    kinds: dict[Annotated[str, Field(max_length=64)], int] | None = Field(
        None, max_length=256, description="Version of each kind's model that it computes; null: any."
    )
    wait_seconds: float = Field(0.0, ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for work.")


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
    state: Literal["starting", "idle", "busy", "draining", "drained", "stopped"]
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
    cpu_energy_joules_total: float | None = Field(None, ge=0, le=1e18)
    gpus: Annotated[str, Field(max_length=65_536), AfterValidator(_are_gpus)] | None = None
    retired: Reason | None = None


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


class Claim(Call):
    """A worker takes a GPU of its host, renews that, or gives it back."""

    gpu: str = Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$", description="Its UUID.")
    keep: bool


def known_queues(names: list[str]) -> list[str]:
    """Return those of the names that are queues."""
    return [name for name in names if name in queues.ALL]
