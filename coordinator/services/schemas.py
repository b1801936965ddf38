"""OpenAPI models of requests and responses that the gateway forwards."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Inference(BaseModel):
    """A request in the form of the OpenAI or Anthropic API. Other fields are sent to the engine unchanged."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1, description="A model that GET /v1/models lists: the name of a service.")
    stream: bool = Field(False, description="Stream the response as server-sent events.")


class Inferred(BaseModel):
    """The engine's response. With `stream`, the response is server-sent events of such objects."""

    model_config = ConfigDict(extra="allow")

    object: str
    model: str


class Ranked(BaseModel):
    """Documents with their relevance scores, as returned by the engine."""

    model_config = ConfigDict(extra="allow")

    model: str
    results: list[dict[str, Any]] = Field(description="Each has `index` and `relevance_score`.")


class Message(BaseModel):
    """The engine's response. With `stream`, the response is server-sent events."""

    model_config = ConfigDict(extra="allow")

    type: str
    model: str


class CountedTokens(BaseModel):
    model_config = ConfigDict(extra="allow")

    input_tokens: int = Field(description="Number of tokens of the prompt, counted by the engine.")
