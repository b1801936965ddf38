"""Validation of API responses against their declarations in threads_protocol."""

from __future__ import annotations

from functools import cache
from typing import Any, NotRequired, TypeAlias

from pydantic import TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from threads_cluster.client import records
from threads_cluster.errors import UnexpectedAnswer
from threads_protocol.answers.fields import Many

#: Type of a response that can be any JSON object.
Anything: TypeAlias = dict[str, Any]


@with_config(strict=True)
class Version(TypedDict):
    """The field `version` of the status response, which every version of the cluster sends."""

    version: str


@with_config(strict=True)
class Event(TypedDict):
    """Event in the event stream of a job."""

    state: NotRequired[str | None]


@with_config(strict=True)
class Trace(TypedDict):
    """Trace of one replica in Perfetto's format."""

    traceEvents: Many[dict[str, Any]]


def checked(shape: Any, answer: Any, url: str) -> dict[str, Any]:
    """Return a response as a `Record` if it is valid. Otherwise, raise UnexpectedAnswer with the first invalid field.

    Undeclared fields are allowed, because a newer cluster can send more fields.
    """
    if not isinstance(answer, dict):
        raise UnexpectedAnswer(url, "the response is not a JSON object")
    try:
        _adapter(shape).validate_python(answer, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UnexpectedAnswer(url, f"{place}: {first['msg'].lower()}") from None
    return records.displayed(shape, answer)


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
