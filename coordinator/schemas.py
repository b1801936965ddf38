"""OpenAPI models of responses to workers and probes. threads_protocol declares the responses to clients."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


def required(text: str) -> Any:
    """Return a required field with a description."""
    return Field(description=text)


class Health(Answer):
    status: Literal["ok"]
    version: str


class Ready(Answer):
    status: Literal["ready"]
