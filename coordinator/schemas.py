"""Base of all answers' descriptions; nothing is validated on its way out.

An integer that can pass 2^53 is a number up to there and a decimal string beyond.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


def required(text: str) -> Any:
    """Describe a field that is always there."""
    return Field(description=text)


def optional(text: str | None = None) -> Any:
    """Describe a field that is left out where it is not known."""
    return Field(default=None, description=text)


class Problem(BaseModel):
    """Error as RFC 9457 has it: what went wrong, why, and which field of the request it is about."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None


class Health(Answer):
    status: Literal["ok"]
    version: str


class Ready(Answer):
    status: Literal["ready"]
