"""Parameters of a command. Rules between them are in `definition.py`, fields that kinds share beside the folders."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StringConstraints, WithJsonSchema

from jobs.kinds import program_arguments
from jobs.kinds import program_fields as fields
from jobs.kinds import program_texts as texts
from jobs.kinds.program_arguments import Argument
from jobs.kinds.program_fields import (
    Artifact,
    Batch,
    Count,
    Delay,
    Early,
    Factor,
    Grace,
    Requirements,
    Retry,
    Seconds,
    Workspace,
)
from jobs.kinds.program_texts import wrong
from threads_protocol.numbers import short


def _items(value: Any) -> list[Any] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not 1 <= len(value) <= fields.MAX_UNITS:
        raise wrong(f"must be a list of 1..{fields.MAX_UNITS} values; got {short(value)}")
    try:
        size = len(texts.as_json(value))
    except (TypeError, ValueError, RecursionError):
        raise wrong(f"must be a list of JSON values; got {type(value).__name__} of {len(value)}") from None
    if size > fields.MAX_ITEMS:
        raise wrong(
            f"have at most {fields.MAX_ITEMS} bytes as JSON; got {size}: put a file with one value a line into an "
            "artifact, and give that as items_artifact with count"
        )
    for number, item in enumerate(value, 1):
        if not _is_unicode(item):
            raise wrong(f"item {number} has half of a surrogate pair, which is no text; got {short(ascii(item))}")
    return value


def _is_unicode(value: Any) -> bool:
    if isinstance(value, str):
        return texts.is_unicode(value)
    if isinstance(value, dict):
        return all(map(_is_unicode, value)) and all(map(_is_unicode, value.values()))
    return not isinstance(value, list) or all(map(_is_unicode, value))


class Retries(BaseModel):
    """How often a unit that failed is tried again, and after which waits."""

    model_config = ConfigDict(extra="forbid")

    max: Retry = Field(3, description="Further attempts of a unit.")
    initial_delay_seconds: Delay = Field(1.0, description="Before the second attempt.")
    factor: Factor = Field(2.0, description="Each wait is this many times the one before.")
    max_delay_seconds: Delay = Field(60.0, description="No wait is longer.")
    jitter: bool = Field(True, strict=True, description="Draw each wait from its second half.")


class Python(BaseModel):
    """A Python environment that the runner makes and keeps."""

    model_config = ConfigDict(extra="forbid")

    requirements: Annotated[
        str, PlainValidator(fields.path), WithJsonSchema({**fields.TEXT, "minLength": 1, "maxLength": fields.MAX_PATH})
    ] = Field(description="A file of requirements among `files`.")
    module: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")] | None = Field(
        None, description="A module of these packages: a runner whose own Python has it makes no environment."
    )


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    command: Annotated[
        list[Argument] | str,
        PlainValidator(fields.command),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "array", "items": program_arguments.SCHEMA, "minItems": 1, "maxItems": fields.MAX_WORDS},
                    {"type": "string", "minLength": 1, "maxLength": fields.MAX_COMMAND},
                ]
            }
        ),
    ] = Field(description="A program and its arguments, with {unit} and {item} filled in; or text for sh.")
    count: Count | None = Field(None, description="Units, numbered from 0; null: one, or one an item.")
    items: Annotated[
        list[Any] | None,
        PlainValidator(_items),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "array", "items": {}, "minItems": 1, "maxItems": fields.MAX_UNITS},
                    {"type": "null"},
                ]
            }
        ),
    ] = Field(None, description="A value a unit, as {item} and CLUSTER_ITEM; 48 KiB as JSON.")
    items_artifact: Artifact | None = Field(None, description="The same from an artifact: one JSON value a line.")
    files: Artifact | None = Field(None, description="The artifact that is in the program's folder when it starts.")
    outputs: Annotated[
        list[str],
        PlainValidator(fields.outputs),
        WithJsonSchema({"type": "array", "items": fields.TEXT, "maxItems": fields.MAX_OUTPUTS}),
    ] = Field(default_factory=list, description="What is kept of its folder, such as out/**/*.csv.")
    env: Annotated[
        dict[str, str],
        PlainValidator(fields.environment),
        WithJsonSchema({"type": "object", "additionalProperties": fields.TEXT, "maxProperties": fields.MAX_VARIABLES}),
    ] = Field(default_factory=dict, description="Variables of its environment.")
    secrets: Annotated[
        list[str],
        PlainValidator(fields.secrets),
        WithJsonSchema({"type": "array", "items": fields.TEXT, "maxItems": fields.MAX_VARIABLES}),
    ] = Field(default_factory=list, description="Names of secrets that its environment has.")
    timeout_seconds: Seconds | None = Field(None, description="A unit is killed after this time; null: never.")
    stop_signal_seconds: Early = Field(0.0, description="It gets SIGTERM this long before its timeout.")
    grace_seconds: Grace = Field(10.0, description="Between SIGTERM and SIGKILL when it is cancelled.")
    retries: Retries = Field(
        default_factory=lambda: Retries.model_validate({}),
        json_schema_extra=fields.usual(Retries),
        description="What follows an exit code other than 0.",
    )
    batch: Batch | None = Field(None, description="Most units that a slot takes at once; null: by their measured pace.")
    requirements: Requirements = Field(
        default_factory=lambda: Requirements.model_validate({}),
        json_schema_extra=fields.usual(Requirements),
        description="What each unit needs.",
    )
    workspace: Workspace | None = Field(None, description="A folder that outlives attempts and jobs, by its name.")
    python: Python | None = Field(None, description="A Python environment, first in PATH.")
