"""Parameters of the kind `service`: types, bounds and error messages."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StringConstraints, WithJsonSchema

from jobs.kinds import program_arguments
from jobs.kinds import program_fields as fields
from jobs.kinds import program_texts as texts
from jobs.kinds.program_arguments import Argument
from jobs.kinds.program_fields import Artifact, Grace, Requirements

#: Pattern of service names and engine names.
NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
#: Maximum size in bytes of the list of Python packages, in which each package has hashes.
MAX_PACKAGES = 24 << 10
MAX_PATH = 256
#: Maximum time in seconds until a replica is ready.
MAX_START = 7200.0


def _words(value: Any) -> list[Argument]:
    command = fields.command(value)
    if isinstance(command, str):
        raise texts.validation_error("must be a list: a program and its arguments")
    return command


def _packages(value: Any) -> str | None:
    return None if value is None else texts.check_text(value, "the list of packages", MAX_PACKAGES)


def _health(value: Any) -> str:
    path = texts.check_text(value, "the health path", MAX_PATH)
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        raise texts.validation_error(
            f"must start with / and contain no spaces, such as /health; got {texts.shorten(path)}"
        )
    return path


Start: TypeAlias = Annotated[float, fields.Between(1, MAX_START)]


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    service: Annotated[str, StringConstraints(pattern=NAME)] = Field(description="Name of the service.")
    engine: Annotated[str, StringConstraints(pattern=NAME)] = Field(description="Name of the engine.")
    command: Annotated[
        list[Argument],
        PlainValidator(_words),
        WithJsonSchema(
            {
                "type": "array",
                "items": program_arguments.SCHEMA,
                "minItems": 1,
                "maxItems": fields.MAX_WORDS,
            }
        ),
    ] = Field(description="A program and its arguments, in which {port}, {address} and {python} are replaced.")
    env: Annotated[
        dict[str, str],
        PlainValidator(fields.environment),
        WithJsonSchema(
            {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": fields.MAX_VARIABLES}
        ),
    ] = Field(default_factory=dict, description="Environment variables of the program.")
    files: Artifact | None = Field(None, description="Artifact whose files are copied into the program's folder.")
    packages: Annotated[
        str | None,
        PlainValidator(_packages),
        WithJsonSchema({"anyOf": [{"type": "string", "maxLength": MAX_PACKAGES}, {"type": "null"}]}),
    ] = Field(None, description="Contents of a requirements file with the packages that {python} has.")
    module: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")] | None = Field(
        None, description="Module of one of these packages; a runner whose Python has this module installs no packages."
    )
    health: Annotated[
        str, PlainValidator(_health), WithJsonSchema({"type": "string", "pattern": "^/", "maxLength": MAX_PATH})
    ] = Field("/health", description="Path that returns 2xx once the replica is ready.")
    group: bool = Field(False, description="Whether one replica leads; all others receive its address.")
    start_timeout_seconds: Start = Field(600.0, description="Time after which a replica that is not ready is stopped.")
    grace_seconds: Grace = Field(10.0, description="Time between SIGTERM and SIGKILL.")
    requirements: Requirements = Field(
        default_factory=lambda: Requirements.model_validate({}),
        json_schema_extra=fields.default_schema(Requirements),
        description="Resources that a replica needs.",
    )
