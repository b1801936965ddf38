"""Types of fields, with the bounds by which the client checks them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NotRequired, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, PlainSerializer, with_config
from typing_extensions import TypedDict

from threads_protocol.states import JobState

Element = TypeVar("Element")


@with_config(extra="forbid", strict=True, allow_inf_nan=False)
class Answer(TypedDict):
    """Base of the answers: in OpenAPI they have no other fields. The client ignores those it does not know."""


def describe(text: str) -> Any:
    """Describe a field in OpenAPI."""
    return Field(description=text)


def one_of(words: Any) -> PlainSerializer:
    """Name the values of a text in OpenAPI. The client takes others too: a newer cluster may have more of them."""
    return PlainSerializer(str, return_type=words)


def _require_time_zone(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a moment has a time zone")
    return text


Id: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$", max_length=200)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=2**64)]
#: Seconds, or a time as seconds since 1970.
Seconds: TypeAlias = Annotated[float, Field(ge=0)]
#: A number up to 2^53, decimal digits beyond.
Whole: TypeAlias = Count | Annotated[str, Field(pattern="^[0-9]{1,40}$")]
#: A time as RFC 3339 has it.
Moment: TypeAlias = Annotated[str, AfterValidator(_require_time_zone)]
#: A list whose first wrong element is enough to refuse it.
Many: TypeAlias = Annotated[list[Element], Field(fail_fast=True)]
State: TypeAlias = Annotated[str, one_of(JobState)]


@with_config(strict=True)
class Problem(TypedDict):
    """Error as RFC 9457 has it: what went wrong, why, and which field of the request it is about."""

    type: str
    title: str
    status: int
    detail: str
    field: NotRequired[str]
