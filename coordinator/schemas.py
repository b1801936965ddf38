"""Base of the answers to workers and probes, for the API's description. Those to clients are in threads_protocol."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


def required(text: str) -> Any:
    """Describe a field that is always there."""
    return Field(description=text)


class Health(Answer):
    status: Literal["ok"]
    version: str


class Ready(Answer):
    status: Literal["ready"]
