"""Field types of responses. The client checks their bounds."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NotRequired, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, PlainSerializer, with_config
from typing_extensions import TypedDict

from threads_protocol.states import JobState

Element = TypeVar("Element")


@with_config(extra="forbid", strict=True, allow_inf_nan=False)
class Answer(TypedDict):
    """Base class of all responses. OpenAPI declares no further fields, and the client ignores unknown ones."""


def describe(text: str) -> Any:
    """Return a description of a field for OpenAPI."""
    return Field(description=text)


def one_of(words: Any) -> PlainSerializer:
    """List the values of a string field in OpenAPI. The client also accepts other values from a newer cluster."""
    return PlainSerializer(str, return_type=words)


def _require_time_zone(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a timestamp must have a time zone")
    return text


Id: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$", max_length=200)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=2**64)]
#: Duration in seconds, or time in seconds since 1970.
Seconds: TypeAlias = Annotated[float, Field(ge=0)]
#: Integer of any size: a JSON number up to 2^53, and a string of decimal digits beyond.
Whole: TypeAlias = Count | Annotated[str, Field(pattern="^[0-9]{1,40}$")]
#: Time in RFC 3339 format.
Moment: TypeAlias = Annotated[str, AfterValidator(_require_time_zone)]
#: List that is validated only up to its first invalid element.
Many: TypeAlias = Annotated[list[Element], Field(fail_fast=True)]
State: TypeAlias = Annotated[str, one_of(JobState)]


@with_config(strict=True)
class Problem(TypedDict):
    """Error response in the format of RFC 9457, with a title, the reason and the invalid field."""

    type: str
    title: str
    status: int
    detail: str
    field: NotRequired[str]
