"""Parameters of the kind `command`, with their types, bounds and error messages.

Rules between parameters are in `definition.py`, shared field types in `program_fields.py`.
"""

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
    Input,
    Requirements,
    Retry,
    Seconds,
    Workspace,
)
from jobs.kinds.program_texts import validation_error
from threads_protocol.numbers import short


def _items(value: Any) -> list[Any] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not 1 <= len(value) <= fields.MAX_UNITS:
        raise validation_error(f"must be a list of 1..{fields.MAX_UNITS} values; got {short(value)}")
    try:
        size = len(texts.as_json(value))
    except (TypeError, ValueError, RecursionError):
        raise validation_error(f"must be a list of JSON values; got {type(value).__name__} of {len(value)}") from None
    if size > fields.MAX_ITEMS:
        raise validation_error(
            f"must have at most {fields.MAX_ITEMS} bytes as JSON; got {size}. Put larger lists into an artifact with "
            "one value per line, and use items_artifact with count"
        )
    for number, item in enumerate(value, 1):
        if not _is_unicode(item):
            raise validation_error(
                f"item {number} contains a lone surrogate, which UTF-8 cannot encode; got {short(ascii(item))}"
            )
    return value


def _is_unicode(value: Any) -> bool:
    if isinstance(value, str):
        return texts.is_unicode(value)
    if isinstance(value, dict):
        return all(map(_is_unicode, value)) and all(map(_is_unicode, value.values()))
    return not isinstance(value, list) or all(map(_is_unicode, value))


class Retries(BaseModel):
    """Number of retries of a failed unit, and the delays between them."""

    model_config = ConfigDict(extra="forbid")

    max: Retry = Field(0, description="Maximum number of retries of a failed unit.")
    initial_delay_seconds: Delay = Field(1.0, description="Delay before the second attempt.")
    factor: Factor = Field(2.0, description="Factor by which the delay grows with each retry.")
    max_delay_seconds: Delay = Field(60.0, description="Maximum delay before a retry.")
    jitter: bool = Field(
        True, strict=True, description="Choose each delay at random between half of the delay and the full delay."
    )


class Python(BaseModel):
    """Python environment of the program. The runner creates and caches it, or uses its own Python."""

    model_config = ConfigDict(extra="forbid")

    requirements: Annotated[
        str, PlainValidator(fields.path), WithJsonSchema({**fields.TEXT, "minLength": 1, "maxLength": fields.MAX_PATH})
    ] = Field(description="Path of a requirements file in `files`.")
    module: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")] | None = Field(
        None,
        description="Module of one of these packages; a runner whose Python has this module creates no environment.",
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
    ] = Field(description="A program and its arguments, in which {unit} and {item} are replaced; or a command for sh.")
    count: Count | None = Field(None, description="Number of units, numbered from 0; null: 1, or the number of items.")
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
    ] = Field(None, description="One value per unit, available as {item} and CLUSTER_ITEM; at most 48 KiB of JSON.")
    items_artifact: Artifact | None = Field(None, description="Artifact with the items: one JSON value per line.")
    files: Artifact | None = Field(None, description="Artifact whose files are copied into the program's folder.")
    outputs: Annotated[
        list[str],
        PlainValidator(fields.outputs),
        WithJsonSchema({"type": "array", "items": fields.TEXT, "maxItems": fields.MAX_OUTPUTS}),
    ] = Field(default_factory=list, description="Patterns of output files to keep, such as out/**/*.csv.")
    env: Annotated[
        dict[str, str],
        PlainValidator(fields.environment),
        WithJsonSchema({"type": "object", "additionalProperties": fields.TEXT, "maxProperties": fields.MAX_VARIABLES}),
    ] = Field(default_factory=dict, description="Environment variables of the program.")
    secrets: Annotated[
        list[str],
        PlainValidator(fields.secrets),
        WithJsonSchema({"type": "array", "items": fields.TEXT, "maxItems": fields.MAX_VARIABLES}),
    ] = Field(default_factory=list, description="Names of secrets to set as environment variables.")
    timeout_seconds: Seconds | None = Field(None, description="Time after which a unit is killed; null: never.")
    stop_signal_seconds: Early = Field(0.0, description="Time before the timeout at which SIGTERM is sent.")
    grace_seconds: Grace = Field(10.0, description="Time between SIGTERM and SIGKILL on cancellation.")
    retries: Retries = Field(
        default_factory=lambda: Retries.model_validate({}),
        json_schema_extra=fields.default_schema(Retries),
        description="Retries of a failed unit. By default, a failed unit is not retried.",
    )
    batch: Batch | None = Field(None, description="Maximum number of units per lease; null: chosen by measured speed.")
    requirements: Requirements = Field(
        default_factory=lambda: Requirements.model_validate({}),
        json_schema_extra=fields.default_schema(Requirements),
        description="Resources that each unit needs.",
    )
    workspace: Workspace | None = Field(None, description="Name of a folder that is kept between attempts and jobs.")
    persistent: bool = Field(
        False,
        strict=True,
        description="Keep the program alive between units: it reads units from its stdin and answers there.",
    )
    input: Input | None = Field(None, description="Text that a persistent program gets with its first unit of the job.")
    python: Python | None = Field(None, description="Python environment that comes first in PATH.")
