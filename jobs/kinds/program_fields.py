"""Pydantic field types, bounds and error messages that the parameters of all program kinds share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias

from annotated_types import GroupedMetadata
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from jobs.encoding.numbers import ExactInt
from jobs.kinds import program_arguments
from jobs.kinds import program_texts as texts
from jobs.kinds.program_arguments import Argument
from jobs.kinds.program_texts import validation_error
from threads_protocol.numbers import short

#: Maximum number of units of a job; the store keeps a record of each unit.
MAX_UNITS = 100_000
#: Maximum number of command arguments, and their maximum total size in bytes of UTF-8.
MAX_WORDS, MAX_COMMAND = 1000, 32 << 10
#: Maximum size in bytes of `items` as ASCII JSON; larger lists belong in an artifact.
MAX_ITEMS = 48 << 10
#: Maximum number of environment variables, total bytes of names and values, and length of a name.
MAX_VARIABLES, MAX_ENVIRONMENT, MAX_NAME = 100, 16 << 10, 128
#: Maximum number of output patterns, and maximum size of one pattern in bytes.
MAX_OUTPUTS, MAX_PATH = 100, 1024
#: Maximum duration in seconds of a unit, and of a delay between two attempts.
MAX_SECONDS, MAX_DELAY = 366 * 86400.0, 3600.0
#: Maximum seconds that a cancelled program may take to exit; its lease is not renewed during this time.
MAX_GRACE = 25.0
MAX_LABELS = 32

_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ARTIFACT = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WORKSPACE = re.compile(r"[a-z0-9-]{1,64}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=/-]{0,62}")
_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]")
#: Pattern of the environment variables that only the runner can set.
_RUNNERS = re.compile(r"CLUSTER_.*|CUDA_VISIBLE_DEVICES|HOME")
TEXT = {"type": "string"}
#: Maximum length of the input of a persistent program.
MAX_INPUT = 48 << 10


def command(value: Any) -> list[Argument] | str:
    if isinstance(value, str):
        return texts.check_text(value, "the shell command", MAX_COMMAND)
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_WORDS:
        raise validation_error(f"must be a shell command or a list of 1..{MAX_WORDS} texts; got {short(value)}")
    words = [_argument(number, word) for number, word in enumerate(value, 1)]
    plain = [program_arguments.text_of(word) for word in words]
    if not plain[0]:
        raise validation_error("the first argument is the program and must not be empty")
    texts.check_total_size(plain, "the arguments", MAX_COMMAND)
    return words


def _argument(number: int, value: Any) -> Argument:
    """Normalize an argument: a literal without placeholders becomes a plain text."""
    is_literal = program_arguments.is_literal(value)
    text = value[program_arguments.LITERAL] if is_literal else value
    if complaint := texts.problem(text):
        raise validation_error(f"argument {number} {complaint}; got {texts.shorten(text)}")
    return program_arguments.literal(text) if is_literal else text


def environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_VARIABLES:
        raise validation_error(f"must be an object with at most {MAX_VARIABLES} variables; got {short(type(value))}")
    for name, text in value.items():
        _check_variable(name, _NAME)
        if complaint := texts.problem(text):
            raise validation_error(f"the value of {name} {complaint}; got {type(text).__name__}")
    texts.check_total_size([*value, *value.values()], "names and values", MAX_ENVIRONMENT)
    return dict(value)


def _check_variable(name: Any, pattern: re.Pattern[str]) -> None:
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise validation_error(
            f"a name must have 1..{MAX_NAME} letters, digits and _, and no digit first; got {short(name)}"
        )
    if _RUNNERS.fullmatch(name):
        raise validation_error(f"the runner sets HOME, CUDA_VISIBLE_DEVICES and CLUSTER_* itself; got {short(name)}")


def secrets(value: Any) -> list[str]:
    names = _list(value, MAX_VARIABLES)
    for name in names:
        _check_variable(name, _SECRET)
    texts.check_unique(names, "secrets")
    return names


def outputs(value: Any) -> list[str]:
    patterns = [_pattern(pattern) for pattern in _list(value, MAX_OUTPUTS)]
    texts.check_unique(patterns, "outputs")
    return patterns


def _pattern(value: Any) -> str:
    """Normalize an output pattern: `./out/` becomes `out`, which matches everything in the folder."""
    bare = value.removeprefix("./").removesuffix("/") if isinstance(value, str) else value
    return path(bare or value)


def path(value: Any) -> str:
    text = texts.check_text(value, "a path", MAX_PATH)
    if text.startswith("/") or "\\" in text or any(part in ("", ".", "..") for part in text.split("/")):
        raise validation_error(
            f"a path must be relative and must not contain ., .., // or a backslash; got {short(text)}"
        )
    return text


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise validation_error(f"must be a list of at most {most} texts; got {short(value)}")
    return list(value)


def _labels(value: Any) -> list[str]:
    named = _list(value, MAX_LABELS)
    for label in named:
        _match(label, _LABEL, "a label must have 1 to 63 letters, digits and ._=/-")
    return sorted(set(named))


def _match(value: Any, pattern: re.Pattern[str], rule: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise validation_error(f"{rule}; got {short(value)}")
    return value


class Matching(GroupedMetadata):
    """Pydantic field type for a text that must match a pattern."""

    def __init__(self, pattern: re.Pattern[str], rule: str) -> None:
        self._pattern, self._rule = pattern, rule

    def __iter__(self) -> Iterator[Any]:
        yield PlainValidator(lambda value: _match(value, self._pattern, self._rule))
        yield WithJsonSchema({**TEXT, "pattern": f"^{self._pattern.pattern}$"})


def _number(value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise validation_error(f"must be a number in {low:g}..{high:.15g}; got {short(value)}")
    return value


class Between(GroupedMetadata):
    """Pydantic field type for a number within bounds; rejects texts and booleans."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def __iter__(self) -> Iterator[Any]:
        yield PlainValidator(lambda value: _number(value, self._low, self._high))
        yield WithJsonSchema({"type": "number", "minimum": self._low, "maximum": self._high})


def _cpus(value: Any) -> float:
    number = _number(value, 0.5, 4096)
    if number * 2 != int(number * 2):
        raise validation_error(f"must be a multiple of 0.5, such as 0.5 or 4; got {short(value)}")
    return int(number) if number == int(number) else number


Artifact: TypeAlias = Annotated[str, Matching(_ARTIFACT, "must be an artifact's name or ID; 8 digits are enough")]
Capability: TypeAlias = Annotated[str, Matching(_CAPABILITY, "must be a compute capability, such as 8.0")]
Host: TypeAlias = Annotated[str, Matching(_HOST, "must be a host name")]
Workspace: TypeAlias = Annotated[str, Matching(_WORKSPACE, "must have 1 to 64 lowercase letters, digits and -")]
Input: TypeAlias = Annotated[
    str,
    PlainValidator(lambda value: texts.check_text(value, "the input", MAX_INPUT)),
    WithJsonSchema({**TEXT, "minLength": 1, "maxLength": MAX_INPUT}),
]
Count: TypeAlias = Annotated[int, ExactInt(1, MAX_UNITS)]
Gpus: TypeAlias = Annotated[int, ExactInt(1, 64)]
Mebibytes: TypeAlias = Annotated[int, ExactInt(1, 2**30)]
Retry: TypeAlias = Annotated[int, ExactInt(0, 1000)]
Batch: TypeAlias = Annotated[int, ExactInt(1, MAX_UNITS)]
Seconds: TypeAlias = Annotated[float, Between(0.1, MAX_SECONDS)]
Delay: TypeAlias = Annotated[float, Between(0, MAX_DELAY)]
Early: TypeAlias = Annotated[float, Between(0, MAX_SECONDS)]
Factor: TypeAlias = Annotated[float, Between(1, 100)]
Grace: TypeAlias = Annotated[float, Between(0, MAX_GRACE)]


class Requirements(BaseModel):
    """Resources that a runner must have free to run one unit."""

    model_config = ConfigDict(extra="forbid")

    gpus: Gpus | None = Field(None, description="Number of GPUs for exclusive use.")
    gpu_memory_mib: Mebibytes | None = Field(None, description="Minimum memory of each GPU in MiB.")
    compute_capability: Capability | None = Field(None, description="Minimum compute capability of each GPU.")
    cpus: Annotated[
        float | None,
        PlainValidator(lambda value: None if value is None else _cpus(value)),
        WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0.5, "maximum": 4096}, {"type": "null"}]}),
    ] = Field(None, description="Number of CPUs, in steps of 0.5; null: the CPUs of one slot.")
    memory_mib: Mebibytes | None = Field(None, description="Memory in MiB; a unit that uses more is killed.")
    host: Host | None = Field(None, description="Host that the unit must run on.")
    labels: Annotated[
        list[str],
        PlainValidator(_labels),
        WithJsonSchema({"type": "array", "items": TEXT, "maxItems": MAX_LABELS}),
    ] = Field(default_factory=list, description="Labels that the runner must have.")

    def stated(self) -> dict[str, Any]:
        """Return the requirements that are set, sorted by name, so that equal requirements have equal JSON."""
        return {name: value for name, value in sorted(self.model_dump().items()) if value not in (None, [])}


def default_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema default of a field that has a default factory.

    Pydantic calls a factory ten times faster than it copies a default.
    """
    return {"default": model.model_validate({}).model_dump()}
