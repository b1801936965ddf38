"""Types of arguments that workers send to the store, with the bounds that coordinators check and document."""

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

#: JSON texts up to this size are parsed. Of larger ones, which would delay all other calls, only the ends are checked.
READ_BYTES = 1 << 20
#: Characters of base64 that are decoded at once; a multiple of four.
_PIECE = 1 << 20
#: Characters of an error message.
MAX_REASON = 2000
#: Characters of the error of a program's unit that are kept, and bytes of its record.
MAX_UNIT_ERROR, MAX_UNIT_ROW = 300, 4096
#: Longest wait of a failed unit in milliseconds.
MAX_WAIT_MS = 3_600_000
#: Largest rate of a lane in units/s, and largest speed relative to the kind's estimate.
MAX_RATE, MAX_PACE = 1e18, 1e9
#: Longest time of a lane on one lease in milliseconds.
_MAX_MS = 31 * 86_400_000
#: Largest absolute number in the JSON texts of a worker.
_MOST = 2**64


def json_check(shape: Any, what: str) -> Callable[[str], str]:
    """Return a check that returns JSON texts of this shape and raises ValueError for others. `what` names it."""
    sort: TypeAdapter[Any] = TypeAdapter(shape)

    def check(text: str) -> str:
        try:
            sort.validate_json(text, strict=True)
        except ValidationError as error:
            raise ValueError(f"must be a JSON {what}: {error.errors(include_input=False)[0]['msg']}") from None
        return text

    return check


def is_json_of(shape: Any, what: str) -> AfterValidator:
    """Return the same check for a type."""
    return AfterValidator(json_check(shape, what))


def _decoded(text: Any) -> bytes:
    """Return the bytes of a base64 text. Raise ValueError if it is invalid."""
    try:  # by pieces, between which other threads run
        starts = range(0, len(text), _PIECE)
        pieces = [binascii.a2b_base64(text[start : start + _PIECE], strict_mode=True) for start in starts]
    except (TypeError, ValueError):
        raise ValueError("must be base64") from None
    if any(len(piece) != _PIECE // 4 * 3 for piece in pieces[:-1]):  # padding before the end
        raise ValueError("must be base64")
    return b"".join(pieces)


def packed(content: bytes) -> str:
    """Return bytes as base64 for a JSON text."""
    return base64.b64encode(content).decode()


def _is_object(text: bytes) -> bytes:
    """Return the text if it is a JSON object in UTF-8 without NaN. Raise ValueError otherwise."""
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


def _known(names: Sequence[str]) -> list[str]:
    return [name for name in names if name in queues.ALL]


Number = Annotated[float, Field(ge=-_MOST, le=_MOST, allow_inf_nan=False)]
Integer = Annotated[int, Field(ge=-_MOST, le=_MOST)]
Count = Annotated[int, Field(strict=True, ge=0, le=MAX_UNITS)]


class Failure(BaseModel):
    """Record of a failed attempt. Runners may add fields."""

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


_check_failure = json_check(Failure, f"object of at most {MAX_UNIT_ROW} bytes, of facts of one attempt")


def _is_failure(text: str) -> str:
    """Return the record of a failure, or an empty text. Raise ValueError for any other text."""
    if len(text.encode()) > MAX_UNIT_ROW:
        raise ValueError(f"must be a JSON object of at most {MAX_UNIT_ROW} bytes")
    return _check_failure(text) if text else text


_MARKS: TypeAdapter[Any] = TypeAdapter(
    list[tuple[str, Annotated[str, Field(pattern=r"^[0-9]{1,100}-[0-9]{1,100}$")], str]]
)


def _are_marks(text: str) -> str:
    """Return marks in their stored form."""
    try:
        return json.dumps(_MARKS.validate_json(text, strict=True))
    except ValidationError:
        raise ValueError("must be a JSON list of [kind:name, lo-hi, payload], each a text") from None


JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="A job's id.")]
LeaseToken = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9]{1,64}$", description="A lease's token, chosen by its worker, at random.")
]
Lane = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Units = Annotated[int, Field(ge=0, le=MAX_UNITS)]
SomeUnits = Annotated[int, Field(ge=1, le=MAX_UNITS)]
Rate = Annotated[float, Field(ge=0, le=MAX_RATE, description="Units/s that the lane reached; 0: not known.")]
Pace = Annotated[float, Field(ge=0, le=MAX_PACE, description="Speed over the kind's estimate; 0: not known.")]
Milliseconds = Annotated[int, Field(strict=True, ge=0, le=_MAX_MS)]
Joules = Annotated[float, Field(ge=0, le=1e12)]
Reason = Annotated[str, Field(max_length=MAX_REASON, description="For people: why.")]
WorkDevice = Annotated[str, Field(pattern="^(cpu|gpu|runner)$", description="cpu, gpu or runner.")]
QueueNames = Annotated[
    Sequence[Annotated[str, Field(max_length=32)]], Field(max_length=len(queues.ALL)), AfterValidator(_known)
]
GpuNames = Annotated[
    Sequence[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="The UUID of a GPU.")]],
    Field(min_length=1, max_length=64),
    AfterValidator(lambda gpus: sorted(set(gpus))),
]
ClaimPriority = Annotated[
    str,
    Field(
        pattern="^(interactive|high|normal|low)?$",
        description="Of what is computed there, or waits; empty for nothing.",
    ),
]
ProfileId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="A profile's id.")]
RecordingName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
SampledDevices = Annotated[
    Sequence[Annotated[str, Field(pattern=r"^(host|gpu):[A-Za-z0-9._-]{1,120}$")]], Field(max_length=65)
]
Octets = Annotated[
    bytes,
    BeforeValidator(_decoded),
    PlainSerializer(packed, return_type=str),
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
    Field(max_length=MAX_UNIT_ROW, description="What is kept of this failure: a JSON object."),
    AfterValidator(_is_failure),
]
