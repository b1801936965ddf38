"""Parameters of a command: types, bounds, and what each refuses. Rules between parameters are in `definition.py`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from jobs.kinds.command import texts
from jobs.kinds.command.texts import wrong
from jobs.numbers import ExactInt, short

#: Units of a job: rows of all of them are kept.
MAX_UNITS = 100_000
#: Words of a command, and its bytes in UTF-8.
MAX_WORDS, MAX_COMMAND = 1000, 32 << 10
#: Bytes of items as JSON in ASCII; more go into an artifact.
MAX_ITEMS = 48 << 10
#: Variables of the environment, and bytes of their names and values.
MAX_VARIABLES, MAX_ENVIRONMENT, MAX_NAME = 100, 16 << 10, 128
#: Patterns of outputs, and bytes of one.
MAX_OUTPUTS, MAX_PATH = 100, 1024
#: Longest that a unit may take, and a wait between two attempts.
MAX_SECONDS, MAX_DELAY = 366 * 86400.0, 3600.0
#: Longest that a program which is cancelled may take to end: its lease is not renewed meanwhile.
MAX_GRACE = 25.0
MAX_LABELS = 32

_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ARTIFACT = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WORKSPACE = re.compile(r"[a-z0-9-]{1,64}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=/-]{0,62}")
_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]")
#: Variables that the runner sets.
_RUNNERS = re.compile(r"CLUSTER_.*|CUDA_VISIBLE_DEVICES|HOME")
_TEXT = {"type": "string"}


def _command(value: Any) -> list[str] | str:
    if isinstance(value, str):
        return texts.checked(value, "the shell command", MAX_COMMAND)
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_WORDS:
        raise wrong(f"must be a text for a shell or a list of 1..{MAX_WORDS} texts; got {short(value)}")
    for number, word in enumerate(value, 1):
        if complaint := texts.problem(word):
            raise wrong(f"word {number} {complaint}; got {texts.shown(word)}")
    if not value[0]:
        raise wrong("the first word names the program; got an empty one")
    texts.check_sum(value, "its words have", MAX_COMMAND)
    return list(value)


def _items(value: Any) -> list[Any] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_UNITS:
        raise wrong(f"must be a list of 1..{MAX_UNITS} values; got {short(value)}")
    try:
        size = len(texts.as_json(value))
    except (TypeError, ValueError, RecursionError):
        raise wrong(f"must be a list of JSON values; got {type(value).__name__} of {len(value)}") from None
    if size > MAX_ITEMS:
        raise wrong(
            f"have at most {MAX_ITEMS} bytes as JSON; got {size}: put a file with one value a line into an artifact, "
            "and give that as items_artifact with count"
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


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_VARIABLES:
        raise wrong(f"must be an object of at most {MAX_VARIABLES} names with their texts; got {short(type(value))}")
    for name, text in value.items():
        _check_variable(name, _NAME)
        if complaint := texts.problem(text):
            raise wrong(f"the value of {name} {complaint}; got {type(text).__name__}")
    texts.check_sum([*value, *value.values()], "names and values have", MAX_ENVIRONMENT)
    return dict(value)


def _check_variable(name: Any, pattern: re.Pattern[str]) -> None:
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise wrong(f"a name is letters, digits and _, no digit first, at most {MAX_NAME}; got {short(name)}")
    if _RUNNERS.fullmatch(name):
        raise wrong(f"the runner sets HOME, CUDA_VISIBLE_DEVICES and names with CLUSTER_; got {short(name)}")


def _secrets(value: Any) -> list[str]:
    names = _list(value, MAX_VARIABLES)
    for name in names:
        _check_variable(name, _SECRET)
    texts.check_names(names, "secrets")
    return names


def _outputs(value: Any) -> list[str]:
    patterns = [_pattern(pattern) for pattern in _list(value, MAX_OUTPUTS)]
    texts.check_names(patterns, "outputs")
    return patterns


def _pattern(value: Any) -> str:
    """Return a pattern in one form: `./out/` is `out`, which stands for all that is in it."""
    bare = value.removeprefix("./").removesuffix("/") if isinstance(value, str) else value
    return _path(bare or value)


def _path(value: Any) -> str:
    path = texts.checked(value, "a path", MAX_PATH)
    if path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise wrong(f"a path is relative to the program's folder, without ., .., // and backslash; got {short(path)}")
    return path


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise wrong(f"must be a list of at most {most} texts; got {short(value)}")
    return list(value)


def _labels(value: Any) -> list[str]:
    labels = _list(value, MAX_LABELS)
    for label in labels:
        _match(label, _LABEL, "a label is 1 to 63 letters, digits and ._=/-")
    return sorted(set(labels))


def _match(value: Any, pattern: re.Pattern[str], rule: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise wrong(f"{rule}; got {short(value)}")
    return value


def _matching(pattern: re.Pattern[str], rule: str) -> Any:
    """Return a pydantic field type: a text of this pattern."""
    return Annotated[
        str,
        PlainValidator(lambda value: _match(value, pattern, rule)),
        WithJsonSchema({**_TEXT, "pattern": f"^{pattern.pattern}$"}),
    ]


def _number(value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise wrong(f"must be a number in {low:g}..{high:.15g}; got {short(value)}")
    return value


def _between(low: float, high: float) -> Any:
    """Return a pydantic field type: a number that is no text and no boolean."""
    return Annotated[
        float,
        PlainValidator(lambda value: _number(value, low, high)),
        WithJsonSchema({"type": "number", "minimum": low, "maximum": high}),
    ]


def _cpus(value: Any) -> float:
    number = _number(value, 0.5, 4096)
    if number * 2 != int(number * 2):
        raise wrong(f"must be a number of halves, such as 0.5 or 4; got {short(value)}")
    return int(number) if number == int(number) else number


if TYPE_CHECKING:
    Artifact: TypeAlias = str
    Capability: TypeAlias = str
    Host: TypeAlias = str
    Workspace: TypeAlias = str
    Count: TypeAlias = int
    Gpus: TypeAlias = int
    Mebibytes: TypeAlias = int
    Retry: TypeAlias = int
    Batch: TypeAlias = int
    Seconds: TypeAlias = float
    Delay: TypeAlias = float
    Early: TypeAlias = float
    Factor: TypeAlias = float
    Grace: TypeAlias = float
else:
    Artifact = _matching(_ARTIFACT, "is an artifact's id, the first 8 or more digits of it, or a name")
    Capability = _matching(_CAPABILITY, "is a compute capability, such as 8.0")
    Host = _matching(_HOST, "is a host's name")
    Workspace = _matching(_WORKSPACE, "is 1 to 64 small letters, digits and -")
    Count = ExactInt(1, MAX_UNITS)
    Gpus = ExactInt(1, 64)
    Mebibytes = ExactInt(1, 2**30)
    Retry = ExactInt(0, 1000)
    Batch = ExactInt(1, MAX_UNITS)
    Seconds = _between(0.1, MAX_SECONDS)
    Delay = _between(0, MAX_DELAY)
    Early = _between(0, MAX_SECONDS)
    Factor = _between(1, 100)
    Grace = _between(0, MAX_GRACE)


class Retries(BaseModel):
    """How often a unit that failed is tried again, and after which waits."""

    model_config = ConfigDict(extra="forbid")

    max: Retry = Field(3, description="Further attempts of a unit.")
    initial_delay_seconds: Delay = Field(1.0, description="Before the second attempt.")
    factor: Factor = Field(2.0, description="Each wait is this many times the one before.")
    max_delay_seconds: Delay = Field(60.0, description="No wait is longer.")
    jitter: bool = Field(True, strict=True, description="Draw each wait from its second half.")


class Requirements(BaseModel):
    """Needs of one unit, which a runner must have free."""

    model_config = ConfigDict(extra="forbid")

    gpus: Gpus | None = Field(None, description="GPUs of its own.")
    gpu_memory_mib: Mebibytes | None = Field(None, description="Memory of each of them.")
    compute_capability: Capability | None = Field(None, description="Of each of them, at least.")
    cpus: Annotated[
        float | None,
        PlainValidator(lambda value: None if value is None else _cpus(value)),
        WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0.5, "maximum": 4096}, {"type": "null"}]}),
    ] = Field(None, description="CPUs, in halves; null: those of one slot.")
    memory_mib: Mebibytes | None = Field(None, description="Memory; a unit that takes more is killed.")
    host: Host | None = Field(None, description="The host that it must run on.")
    labels: Annotated[
        list[str], PlainValidator(_labels),
        WithJsonSchema({"type": "array", "items": _TEXT, "maxItems": MAX_LABELS}),
    ] = Field(default_factory=list, description="Labels of the runner, all of them.")  # fmt: skip


class Python(BaseModel):
    """A Python environment that the runner makes and keeps."""

    model_config = ConfigDict(extra="forbid")

    requirements: Annotated[
        str, PlainValidator(_path), WithJsonSchema({**_TEXT, "minLength": 1, "maxLength": MAX_PATH})
    ] = Field(description="A file of requirements among `files`.")


def _usual(model: type[BaseModel]) -> dict[str, Any]:
    """Return the description of a field whose default is made anew for each: copies of one take ten times as long."""
    return {"default": model.model_validate({}).model_dump()}


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    command: Annotated[
        list[str] | str, PlainValidator(_command),
        WithJsonSchema({"anyOf": [
            {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MAX_WORDS},
            {"type": "string", "minLength": 1, "maxLength": MAX_COMMAND},
        ]}),
    ] = Field(description="A program and its arguments, with {unit} and {item} filled in; or text for sh.")  # fmt: skip
    count: Count | None = Field(None, description="Units, numbered from 0; null: one, or one an item.")
    items: Annotated[
        list[Any] | None, PlainValidator(_items),
        WithJsonSchema({"anyOf": [
            {"type": "array", "items": {}, "minItems": 1, "maxItems": MAX_UNITS}, {"type": "null"},
        ]}),
    ] = Field(None, description="A value a unit, as {item} and CLUSTER_ITEM; 48 KiB as JSON.")  # fmt: skip
    items_artifact: Artifact | None = Field(None, description="The same from an artifact: one JSON value a line.")
    files: Artifact | None = Field(None, description="The artifact that is in the program's folder when it starts.")
    outputs: Annotated[
        list[str], PlainValidator(_outputs),
        WithJsonSchema({"type": "array", "items": _TEXT, "maxItems": MAX_OUTPUTS}),
    ] = Field(default_factory=list, description="What is kept of its folder, such as out/**/*.csv.")  # fmt: skip
    env: Annotated[
        dict[str, str], PlainValidator(_environment),
        WithJsonSchema({"type": "object", "additionalProperties": _TEXT, "maxProperties": MAX_VARIABLES}),
    ] = Field(default_factory=dict, description="Variables of its environment.")  # fmt: skip
    secrets: Annotated[
        list[str], PlainValidator(_secrets),
        WithJsonSchema({"type": "array", "items": _TEXT, "maxItems": MAX_VARIABLES}),
    ] = Field(default_factory=list, description="Names of secrets that its environment has.")  # fmt: skip
    timeout_seconds: Seconds | None = Field(None, description="A unit is killed after this time; null: never.")
    stop_signal_seconds: Early = Field(0.0, description="It gets SIGTERM this long before its timeout.")
    grace_seconds: Grace = Field(10.0, description="Between SIGTERM and SIGKILL when it is cancelled.")
    retries: Retries = Field(
        default_factory=lambda: Retries.model_validate({}),
        json_schema_extra=_usual(Retries),
        description="What follows an exit code other than 0.",
    )
    batch: Batch | None = Field(None, description="Most units that a slot takes at once; null: by their measured pace.")
    requirements: Requirements = Field(
        default_factory=lambda: Requirements.model_validate({}),
        json_schema_extra=_usual(Requirements),
        description="What each unit needs.",
    )
    workspace: Workspace | None = Field(None, description="A folder that outlives attempts and jobs, by its name.")
    python: Python | None = Field(None, description="A Python environment, first in PATH.")
