"""Checks of the API's answers, by their declarations in threads_protocol."""

from __future__ import annotations

from functools import cache
from typing import Any, NotRequired, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from threads_cluster.errors import UnexpectedAnswer
from threads_protocol.answers.fields import Many

Checked = TypeVar("Checked")

#: Any object.
Anything: TypeAlias = dict[str, Any]


@with_config(strict=True)
class Version(TypedDict):
    """The part of a status that clusters of every version have."""

    version: str


@with_config(strict=True)
class Event(TypedDict):
    """An event of one job, which describes itself by these fields."""

    state: NotRequired[str | None]


@with_config(strict=True)
class Trace(TypedDict):
    """Trace of one replica, in the form that Perfetto reads. A kind's answers are declared by the kind."""

    traceEvents: Many[dict[str, Any]]


def checked(shape: Any, answer: Checked, url: str) -> Checked:
    """Return the answer as it came. UnexpectedAnswer names the first field that differs from its declaration.

    Fields that are not declared may be there: a newer cluster may send more.
    """
    if not isinstance(answer, dict):
        raise UnexpectedAnswer(url, "the answer is no JSON object")
    try:
        _adapter(shape).validate_python(answer, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UnexpectedAnswer(url, f"{place}: {first['msg'].lower()}") from None
    return answer


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
