"""Definition of the engine for any program that serves HTTP on the assigned port and supports health checks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from engines.contract import Launch, Model
from jobs.kinds import program_arguments, programs
from jobs.kinds import program_fields as fields
from jobs.kinds.program_arguments import Argument

SUMMARY = "Any program that serves HTTP on a port."
ROUTES: Literal["openai", "http"] = "openai"


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    command: Annotated[
        list[Argument] | str,
        PlainValidator(fields.command),
        WithJsonSchema(
            {
                "type": "array",
                "items": program_arguments.SCHEMA,
                "minItems": 1,
                "maxItems": fields.MAX_WORDS,
            }
        ),
    ] = Field(description="Program and its arguments, in which {port}, {address} and {python} are replaced.")
    env: Annotated[
        dict[str, str],
        PlainValidator(fields.environment),
        WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
    ] = Field(default_factory=dict, description="Environment variables of the program.")
    health: str = Field(
        "/health", min_length=1, max_length=256, description="Path that returns HTTP 2xx when the program is ready."
    )


def launch(parameters: Any, model: Model | None, gpus: int) -> Launch:
    """Return the command that the user has passed in the parameters."""
    command = [*programs.SHELL, parameters.command] if isinstance(parameters.command, str) else parameters.command
    return Launch(command=command, env=parameters.env, health=parameters.health)
