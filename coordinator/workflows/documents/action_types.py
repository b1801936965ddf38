"""Action types: one for each kind of job, and types for approvals, artifacts, models and data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from pydantic import ValidationError

from coordinator import locations
from coordinator.artifacts import catalog
from coordinator.jobs import submissions
from coordinator.server import patterns
from coordinator.workflows.documents.references import Path
from jobs import errors
from jobs.kinds import registry
from jobs.kinds.program_fields import Requirements
from jobs.store import artifacts
from threads_protocol.numbers import short

#: Type of an action that waits for a person's approval.
APPROVE = "approve"
#: Maximum length of an approval message in characters.
_MAX_MESSAGE = 1000
#: Result fields that actions of every type provide.
_COMMON_FIELDS = frozenset({"state"})
#: Maximum number of tokens in one generated answer.
_MAX_TOKENS = 1 << 22

#: GPU requirements that an inference action accepts.
_GPU_REQUIREMENTS = ("gpus", "gpu_memory_mib", "compute_capability")

#: List of (path, message) pairs, one for each invalid parameter.
Complaints: TypeAlias = list[tuple[Path, str]]


class Host(Protocol):
    """Access to the tenant's artifacts, models and services for actions that run in the coordinator.

    Each method is idempotent.
    """

    def publish(self, name: str, artifact: str | None, value: Any) -> str:
        """Point a name to an artifact, or to a new artifact that contains `value` as JSON; return the artifact ID."""
        ...

    def delete(self, artifact: str) -> None:
        """Delete an artifact by ID or name. Do nothing if it does not exist."""
        ...

    def step(self, action_type: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Execute one step of a model or data action and return its result fields."""
        ...

    def undo(self, action_type: str, parameters: Mapping[str, Any]) -> UndoResult:
        """Remove the service or the files that a step of this workflow created, unless others use them."""
        ...


@dataclass(frozen=True, kw_only=True)
class UndoResult:
    """Result of undoing a step."""

    #: Whether something was removed. If so, a retry of the workflow runs the step again.
    ended: bool = False
    #: Human-readable description of resources that remain; empty if none remain.
    left: str = ""


@dataclass(frozen=True, kw_only=True)
class ActionType:
    """Definition of an action type."""

    name: str
    #: Names of the action's parameters.
    parameters: frozenset[str]
    #: Names of the result fields; None allows any name.
    gives: frozenset[str] | None
    #: Validates the known parameters; the second argument names parameters that are still unknown.
    check: Callable[[Mapping[str, Any], frozenset[str]], Complaints]
    #: Whether the action becomes a job whose kind has the type's name.
    is_job: bool = False
    #: Runs an action that is not a job and returns its result fields. It must be idempotent.
    run: Callable[[Mapping[str, Any], Host], Mapping[str, Any]] | None = None
    #: Whether the action starts programs although it is not a program job itself.
    runs: bool = False
    #: Whether the type is an internal step, which a workflow text cannot name.
    inner: bool = False


def _kind(name: str) -> ActionType:
    definition = registry.definition(name)
    fields = frozenset(definition.parameters.model_fields)
    return ActionType(
        name=name, parameters=fields, gives=_list_parameters(name), is_job=True, check=_check_by_model(name)
    )


def _list_parameters(kind: str) -> frozenset[str] | None:
    fields = (registry.definition(kind).result_schema or {}).get("properties")
    if fields is None:
        return None
    programs = {"value", "values", "artifact", "artifacts"} if registry.program_kind(kind) else set()
    return _COMMON_FIELDS | {"job_id"} | frozenset(fields) | programs


def _check_by_model(kind: str) -> Callable[[Mapping[str, Any], frozenset[str]], Complaints]:
    definition = registry.definition(kind)

    def check(known: Mapping[str, Any], open_names: frozenset[str]) -> Complaints:
        model = definition.parameters
        try:
            parameters = model.model_validate(dict(known))
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False)
            return [_complaint(one) for one in wrong if not _is_open(one, open_names)]
        if open_names:
            return []
        try:
            definition.plan(parameters)
        except errors.ClusterError as error:
            field = (error.field or "").removeprefix("parameters").removeprefix(".")
            text = error.detail.removeprefix(f"{error.field}: ") if error.field else error.detail
            return [(tuple(field.split(".")) if field else (), text)]
        return []

    return check


def _is_open(complaint: Any, open_names: frozenset[str]) -> bool:
    """Return True if a validation error may disappear once the unknown parameters have values."""
    where = complaint["loc"]
    return bool(open_names) and (not where or where[0] in open_names)


def _complaint(complaint: Any) -> tuple[Path, str]:
    known = {"extra_forbidden": "is not a known field", "missing": "is required"}
    text = known.get(complaint["type"], patterns.explain(complaint["msg"].removeprefix("Value error, ")))
    given = "" if complaint["type"] in known or "got" in text else f"; got {short(complaint['input'])}"
    return tuple(complaint["loc"]), f"{text[0].lower()}{text[1:]}{given}"


# -- action types that the coordinator runs itself ------------------------------------------------------------------


def _require(**rules: Callable[[Any], str]) -> Callable[[Mapping[str, Any], frozenset[str]], Complaints]:
    """Return a check that applies one rule per parameter. A rule returns an error message, or "" for a valid value."""

    def check(known: Mapping[str, Any], open_names: frozenset[str]) -> Complaints:
        wrong = {name: rule(known.get(name)) for name, rule in rules.items() if name not in open_names}
        return [((name,), text) for name, text in wrong.items() if text]

    return check


def _rule(is_sound: Callable[[Any], Any], must: str, *, needed: bool = False) -> Callable[[Any], str]:
    """Return a rule with the error message `must`. Unless `needed`, the value can be omitted."""

    def rule(value: Any) -> str:
        sound = is_sound(value) if needed or value is not None else True
        return "" if sound else f"{must}; got {short(value)}"

    return rule


def _check_by_reader(read: Callable[[Any], Any], *, needed: bool = True) -> Callable[[Any], str]:
    """Return a rule that calls `read` and reports the message of its ValueError."""

    def rule(value: Any) -> str:
        try:
            if needed or value is not None:
                read(value)
        except ValueError as error:
            return str(error)
        return ""

    return rule


def _is_within(value: Any, low: float, high: float, kind: Any = int) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and low <= value <= high


def _matches(pattern: str) -> Callable[[Any], Any]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value)


def _gpus(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, dict) or (unknown := sorted(map(str, value.keys() - _GPU_REQUIREMENTS))):
        given = unknown[0] if isinstance(value, dict) else short(value)
        return f"must be an object with the fields {', '.join(_GPU_REQUIREMENTS)}; got {given}"
    try:
        Requirements.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{first['loc'][0]}: {first['msg']}"
    return ""


def _check_location(*devices: str, any_host: bool = False) -> Callable[[Any], str]:
    return _check_by_reader(lambda value: locations.parse(value, devices, any_host=any_host))


def _source(*, pickled: bool, needed: bool) -> Callable[[Any], str]:
    return _check_by_reader(lambda value: catalog.check_source(value, pickled=pickled), needed=needed)


_message = _rule(
    lambda value: isinstance(value, str) and 1 <= len(value) <= _MAX_MESSAGE,
    f"must be a text of 1..{_MAX_MESSAGE} characters",
)
_port = _rule(lambda value: _is_within(value, 1, 65535), "must be a port, 1..65535")
_flag = _rule(lambda value: isinstance(value, bool), "must be true or false")
_tokens = _rule(lambda value: _is_within(value, 1, _MAX_TOKENS), f"must be an integer in 1..{_MAX_TOKENS}")
_temperature = _rule(lambda value: _is_within(value, 0, 100, int | float), "must be a number in 0..100")
_sha256 = _rule(_matches("[0-9a-f]{64}"), "must be 64 lowercase hexadecimal digits")
_chunk = _rule(
    _matches(rf"{catalog.CHUNK}[0-9a-f]{{12}}"), f"must be {catalog.CHUNK} and 12 lowercase hexadecimal digits"
)
_names = _rule(
    lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "must be a list of secret names",
)
_artifact_name = _rule(
    _matches(artifacts.NAME),
    "must be 1 to 64 lowercase letters, digits, ., _ or -, and start with a letter or a digit",
    needed=True,
)
_any_artifact = _rule(_matches("[A-Za-z0-9._-]{1,64}"), "must be the ID or name of an artifact", needed=True)


def _check_published(known: Mapping[str, Any], open_names: frozenset[str]) -> Complaints:
    wrong: Complaints = _require(name=_artifact_name)(known, open_names)
    given = (known.keys() | open_names) & {"artifact", "value"}
    if len(given) != 1:
        wrong.append((("artifact",), "set either artifact (an ID or name) or value (stored as a JSON file)"))
    elif "artifact" in known and (text := _any_artifact(known["artifact"])):
        wrong.append((("artifact",), text))
    return wrong


def _publish(parameters: Mapping[str, Any], host: Host) -> Mapping[str, Any]:
    name = parameters["name"]
    return {"artifact": host.publish(name, parameters.get("artifact"), parameters.get("value")), "name": name}


def _delete(parameters: Mapping[str, Any], host: Host) -> Mapping[str, Any]:
    host.delete(parameters["artifact"])
    return {"artifact": parameters["artifact"]}


def _define_stepped(
    name: str, gives: Sequence[str], *, written: Sequence[str] = (), **rules: Callable[[Any], str]
) -> ActionType:
    """Return an action type that is executed in steps. Parameters in `written` cannot be references."""
    check = _require(**rules)

    def checked(known: Mapping[str, Any], open_names: frozenset[str]) -> Complaints:
        late = [((one,), "is needed before the workflow starts and cannot be a reference") for one in written]
        return [*check(known, open_names), *(one for one in late if one[0][0] in open_names)]

    def run(parameters: Mapping[str, Any], host: Host) -> Mapping[str, Any]:
        return host.step(name, parameters)

    return ActionType(
        name=name,
        parameters=frozenset(rules),
        gives=_COMMON_FIELDS | frozenset(gives),
        check=checked,
        run=run,
        runs=True,
    )


def _define_step(name: str, *gives: str) -> ActionType:
    """Return the type of an internal step, whose parameters come from a validated action."""
    return ActionType(
        name=name,
        parameters=frozenset(),
        gives=_COMMON_FIELDS | frozenset(gives),
        check=lambda _known, _open: [],
        run=lambda parameters, host: host.step(name, parameters),
        inner=True,
    )


#: Action types that can start services.
SERVING = frozenset({"serve", "move"})
#: Action and step types whose effects outlive the action. Cancelling the workflow undoes them.
UNDOABLE = SERVING | {"model.batch"}

_FILES, _ANY = _check_location("disk", "dram"), _check_location("disk", "dram", "gpu")
_BUILT_IN = (
    ActionType(
        name=APPROVE,
        parameters=frozenset({"message"}),
        gives=_COMMON_FIELDS | {"by", "at"},
        check=_require(message=_message),
    ),
    ActionType(
        name="artifact_publish",
        parameters=frozenset({"name", "artifact", "value"}),
        gives=_COMMON_FIELDS | {"artifact", "name"},
        check=_check_published,
        run=_publish,
    ),
    ActionType(
        name="artifact_delete",
        parameters=frozenset({"artifact"}),
        gives=_COMMON_FIELDS | {"artifact"},
        check=_require(artifact=_any_artifact),
        run=_delete,
    ),
    _define_stepped(
        "download",
        ("model_name", "artifact", "place"),
        written=("model_name", "target_device"),
        model_name=_artifact_name,
        target_device=_FILES,
        source=_source(pickled=False, needed=False),
        sha256=_sha256,
        secrets=_names,
    ),
    _define_stepped(
        "copy",
        ("model_name", "artifact", "place"),
        written=("model_name", "source_device", "target_device"),
        model_name=_artifact_name,
        source_device=_FILES,
        target_device=_FILES,
    ),
    _define_stepped(
        "move",
        ("model_name", "artifact", "place"),
        written=("model_name", "source_device", "target_device"),
        model_name=_artifact_name,
        source_device=_FILES,
        target_device=_ANY,
        keep_source=_flag,
    ),
    _define_stepped(
        "serve",
        ("service_id", "url"),
        written=("model_name", "device"),
        model_name=_artifact_name,
        device=_check_location("gpu", "cpu", any_host=True),
        port=_port,
    ),
    _define_stepped(
        "inference",
        ("output", "artifact", "place"),
        written=("model_name", "output_device", "requirements"),
        model_name=_artifact_name,
        input_data=_any_artifact,
        output_device=_FILES,
        max_tokens=_tokens,
        temperature=_temperature,
        requirements=_gpus,
    ),
    _define_stepped(
        "data_create",
        ("chunk_id", "artifact", "place"),
        written=("target_device",),
        source=_source(pickled=True, needed=True),
        target_device=_FILES,
        secrets=_names,
        chunk_id=_chunk,
    ),
    *(
        _define_stepped(
            name,
            ("chunk_id", "artifact", "place"),
            written=("target_device",),
            data_id=_any_artifact,
            target_device=_FILES,
        )
        for name in ("data_move", "data_transfer")
    ),
    _define_step("model.source", "source", "sha256", "secrets"),
    _define_step("model.keep", "artifact"),
    _define_step("model.at", "artifact"),
    _define_step("model.leave"),
    _define_step("model.batch", "artifact", "command", "python"),
    _define_step("batch.clear"),
    _define_step("data.source", "source", "sha256", "secrets"),
    _define_step("data.keep", "artifact"),
    _define_step("data.at", "chunk_id", "artifact"),
)

#: All action types by name. Tests add further types.
TYPES: dict[str, ActionType] = {one.name: one for one in (*map(_kind, registry.names()), *_BUILT_IN)}

#: Maximum number of unknown parameters reported for one action.
MAX_PARAMETERS = 200


def find_invalid_options(options: Mapping[str, Any]) -> Complaints:
    """Return the invalid job options of an action as (path, message) pairs."""
    try:
        submissions.parse_submission({"type": "any", **options})
    except errors.InvalidRequest as error:
        field = error.field or ""
        return [((field,), error.detail.removeprefix(f"{field}: "))]
    allowed = {"priority": ("high", "normal", "low"), "device": ("gpu", "any", "cpu", "runner")}
    return [
        ((name,), f"must be one of {', '.join(words)}; got {short(options[name])}")
        for name, words in allowed.items()
        if options.get(name, words[0]) not in words
    ]
