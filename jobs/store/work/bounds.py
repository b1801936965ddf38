"""Types of the arguments that workers send to the store. Coordinators check their bounds."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import from_json

from jobs import queues
from jobs.models import MAX_UNITS

#: Maximum size in bytes of a JSON text that is parsed. Parsing a larger text would delay all other calls.
READ_BYTES = 1 << 20
#: Number of base64 characters that are decoded at once. It is a multiple of four.
_PIECE = 1 << 20
#: Maximum number of characters in an error message.
MAX_REASON = 2000
#: Maximum number of characters in the error message of a program's unit.
#: `MAX_UNIT_ROW` is the maximum size in bytes of the record of its failure.
MAX_UNIT_ERROR, MAX_UNIT_ROW = 300, 4096
#: Maximum number of milliseconds before a failed unit can be leased again.
MAX_WAIT_MS = 3_600_000
#: Maximum rate of a lane in units per second.
#: `MAX_PACE` is the maximum ratio of measured speed to the kind's estimate.
MAX_RATE, MAX_PACE = 1e18, 1e9
#: Maximum lane time in milliseconds that one lease can report.
_MAX_MS = 31 * 86_400_000
#: Maximum absolute value of a number in a JSON text from a worker.
_MOST = 2**64


def json_check(shape: Any, what: str) -> Callable[[str], str]:
    """Return a function that checks JSON texts and raises ValueError. `shape` is a type, and `what` describes it to
    users.
    """
    sort: TypeAdapter[Any] = TypeAdapter(shape)

    def check(text: str) -> str:
        try:
            sort.validate_json(text, strict=True)
        except ValidationError as error:
            raise ValueError(f"must be a JSON {what}: {error.errors(include_input=False)[0]['msg']}") from None
        return text

    return check


def is_json_of(shape: Any, what: str) -> AfterValidator:
    """Return an annotation that checks whether a JSON text has the type `shape`."""
    return AfterValidator(json_check(shape, what))


def _decode_base64(text: Any) -> bytes:
    """Decode a base64 text. Raises ValueError if the text is invalid."""
    try:  # Decoding in pieces lets other threads run.
        starts = range(0, len(text), _PIECE)
        pieces = [binascii.a2b_base64(text[start : start + _PIECE], strict_mode=True) for start in starts]
    except (TypeError, ValueError):
        raise ValueError("must be base64") from None
    if any(len(piece) != _PIECE // 4 * 3 for piece in pieces[:-1]):  # Only the last piece may have padding.
        raise ValueError("must be base64")
    return b"".join(pieces)


def encode_base64(content: bytes) -> str:
    """Encode bytes as base64, so that a JSON text can contain them."""
    return base64.b64encode(content).decode()


def _is_object(text: bytes) -> bytes:
    """Return the text if it is a JSON object in UTF-8 without NaN. Otherwise, raise ValueError."""
    if not (_reads_as_object(text) if len(text) <= READ_BYTES else _has_ends(text)):
        raise ValueError("must be the base64 of a JSON object")
    return text


def _reads_as_object(text: bytes) -> bool:
    try:
        return isinstance(from_json(text, allow_inf_nan=False), dict)
    except ValueError:
        return False


def _has_ends(text: bytes) -> bool:
    return text[:1] == b"{" and text[-1:] == b"}" and text.isascii()


def _known_queues(names: Sequence[str]) -> list[str]:
    return [name for name in names if name in queues.ALL]


Number = Annotated[float, Field(ge=-_MOST, le=_MOST, allow_inf_nan=False)]
Integer = Annotated[int, Field(ge=-_MOST, le=_MOST)]
Count = Annotated[int, Field(strict=True, ge=0, le=MAX_UNITS)]


class Failure(BaseModel):
    """Record of a failed attempt of a program's unit. Runners can add fields."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, str | bool | Number | None] = Field(init=False)

    unit: Integer = Field(0, ge=0)
    attempt: Integer = Field(0, ge=0)
    exit: Integer | None = None
    seconds: Annotated[Number, Field(ge=0)] | None = None
    reason: str = ""
    worker: str = ""
    host: str = ""
    error: str = ""
    tail: str = ""
    value: Any = None


_check_failure = json_check(Failure, f"object of at most {MAX_UNIT_ROW} bytes that describes one attempt")


def _is_failure(text: str) -> str:
    """Return the text if it is empty or the record of a failure. Otherwise, raise ValueError."""
    if len(text.encode()) > MAX_UNIT_ROW:
        raise ValueError(f"must be a JSON object of at most {MAX_UNIT_ROW} bytes")
    return _check_failure(text) if text else text


_MARKS: TypeAdapter[Any] = TypeAdapter(
    list[tuple[str, Annotated[str, Field(pattern=r"^[0-9]{1,100}-[0-9]{1,100}$")], str]]
)


def _are_marks(text: str) -> str:
    """Check a JSON list of marks, and return it in the form in which Redis stores it."""
    try:
        return json.dumps(_MARKS.validate_json(text, strict=True))
    except ValidationError:
        raise ValueError("must be a JSON list of [kind:name, lo-hi, payload] with string items") from None


JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="ID of a job.")]
LeaseToken = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9]{1,64}$", description="Token of a lease, which its worker chose at random.")
]
Lane = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Units = Annotated[int, Field(ge=0, le=MAX_UNITS)]
SomeUnits = Annotated[int, Field(ge=1, le=MAX_UNITS)]
Rate = Annotated[float, Field(ge=0, le=MAX_RATE, description="Measured rate of the lane in units/s; 0 if unknown.")]
Pace = Annotated[
    float, Field(ge=0, le=MAX_PACE, description="Ratio of measured speed to the kind's estimate; 0 if unknown.")
]
Milliseconds = Annotated[int, Field(strict=True, ge=0, le=_MAX_MS)]
Joules = Annotated[float, Field(ge=0, le=1e12)]
Reason = Annotated[str, Field(max_length=MAX_REASON, description="Reason, shown to users.")]
WorkDevice = Annotated[str, Field(pattern="^(cpu|gpu|runner)$", description="cpu, gpu or runner.")]
QueueNames = Annotated[
    Sequence[Annotated[str, Field(max_length=32)]], Field(max_length=len(queues.ALL)), AfterValidator(_known_queues)
]
GpuNames = Annotated[
    Sequence[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="UUID of a GPU.")]],
    Field(min_length=1, max_length=64),
    AfterValidator(lambda gpus: sorted(set(gpus))),
]
ClaimPriority = Annotated[
    str,
    Field(
        pattern="^(interactive|high|normal|low)?$",
        description="Priority of the work that runs on these GPUs or waits for them; empty for none.",
    ),
]
ProfileId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="ID of a profile.")]
RecordingName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
SampledDevices = Annotated[
    Sequence[Annotated[str, Field(pattern=r"^(host|gpu):[A-Za-z0-9._-]{1,120}$")]], Field(max_length=65)
]
Octets = Annotated[
    bytes,
    BeforeValidator(_decode_base64),
    PlainSerializer(encode_base64, return_type=str),
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "description": "Bytes in base64."}),
]
Content = Annotated[
    Octets,
    AfterValidator(_is_object),
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "description": "A JSON object in base64."}),
]
Marks = Annotated[str, Field(max_length=1 << 20), AfterValidator(_are_marks)]
FailureRow = Annotated[
    str,
    Field(max_length=MAX_UNIT_ROW, description="Record of the failure, as a JSON object."),
    AfterValidator(_is_failure),
]
