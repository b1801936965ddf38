"""Parameters of a replica: types, bounds, and what each refuses."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StringConstraints, WithJsonSchema

from jobs.kinds import program_arguments
from jobs.kinds import program_fields as fields
from jobs.kinds import program_texts as texts
from jobs.kinds.program_arguments import Argument
from jobs.kinds.program_fields import Artifact, Grace, Requirements

#: Names of services.
NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
#: Bytes of a list of Python packages, of which each has hashes.
MAX_PACKAGES = 24 << 10
MAX_PATH = 256
#: Longest that a replica may take until it is ready.
MAX_START = 7200.0


def _words(value: Any) -> list[Argument]:
    command = fields.command(value)
    if isinstance(command, str):
        raise texts.wrong("must be a list of texts: a program and its arguments")
    return command


def _packages(value: Any) -> str | None:
    return None if value is None else texts.checked(value, "the list of packages", MAX_PACKAGES)


def _health(value: Any) -> str:
    path = texts.checked(value, "a path of health", MAX_PATH)
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        raise texts.wrong(f"must begin with / and have no spaces, such as /health; got {texts.shown(path)}")
    return path


Start: TypeAlias = Annotated[float, fields.Between(1, MAX_START)]


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    service: Annotated[str, StringConstraints(pattern=NAME)] = Field(description="The service's name.")
    engine: Annotated[str, StringConstraints(pattern=NAME)] = Field(description="What runs it.")
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
    ] = Field(description="A program and its arguments, with {port}, {address} and {python} filled in.")
    env: Annotated[
        dict[str, str],
        PlainValidator(fields.environment),
        WithJsonSchema(
            {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": fields.MAX_VARIABLES}
        ),
    ] = Field(default_factory=dict, description="Variables of its environment.")
    files: Artifact | None = Field(None, description="The artifact that is in the program's folder: its model.")
    packages: Annotated[
        str | None,
        PlainValidator(_packages),
        WithJsonSchema({"anyOf": [{"type": "string", "maxLength": MAX_PACKAGES}, {"type": "null"}]}),
    ] = Field(None, description="Python packages that {python} has, as a file of requirements lists them.")
    module: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")] | None = Field(
        None, description="A module of these packages: a runner whose own Python has it installs none."
    )
    health: Annotated[
        str, PlainValidator(_health), WithJsonSchema({"type": "string", "pattern": "^/", "maxLength": MAX_PATH})
    ] = Field("/health", description="The path that answers 2xx once it is ready.")
    group: bool = Field(False, description="One of its replicas leads, and each is told where that one answers.")
    start_timeout_seconds: Start = Field(600.0, description="It is ended when it is not ready by then.")
    grace_seconds: Grace = Field(10.0, description="Between SIGTERM and SIGKILL.")
    requirements: Requirements = Field(
        default_factory=lambda: Requirements.model_validate({}),
        json_schema_extra=fields.usual(Requirements),
        description="What a replica needs.",
    )
