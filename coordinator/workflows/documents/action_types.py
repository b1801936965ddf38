"""Types of actions: every kind of job, and what the cluster itself does: approvals, artifacts, models, data."""

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

#: Waits until a person lets it go on.
APPROVE = "approve"
#: Longest message of an approval.
_MAX_MESSAGE = 1000
#: Fields that every action gives besides those of its type.
_ALWAYS = frozenset({"state"})
#: Most tokens of one answer.
_MAX_TOKENS = 1 << 22

#: Requirements that a batch may have of the GPUs on which it is computed.
_OF_GPUS = ("gpus", "gpu_memory_mib", "compute_capability")

#: Path and text of what is wrong with parameters.
Complaints: TypeAlias = list[tuple[Path, str]]


class Host(Protocol):
    """Things of a workflow's tenant, for actions that the cluster carries out itself. Each call may be repeated."""

    def publish(self, name: str, artifact: str | None, value: Any) -> str:
        """Let a name point to an artifact, or to a new one with a value as JSON; return its id."""
        ...

    def delete(self, artifact: str) -> None:
        """Delete an artifact by its id or name; nothing where there is none."""
        ...

    def step(self, action_type: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out a step of an action about models or data, and return what it gives."""
        ...

    def undo(self, action_type: str, parameters: Mapping[str, Any]) -> Undone:
        """End what such a step began for this workflow, unless others use it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Undone:
    """Outcome of an undo."""

    #: Something was there, and is no more: a retry begins the step anew.
    ended: bool = False
    #: What stays, in words for people; empty: nothing.
    left: str = ""


@dataclass(frozen=True, kw_only=True)
class ActionType:
    """Type of action."""

    name: str
    #: Names of its parameters.
    parameters: frozenset[str]
    #: Fields that it gives; None: any.
    gives: frozenset[str] | None
    #: Returns what is wrong with the parameters that are known, while others are open.
    check: Callable[[Mapping[str, Any], frozenset[str]], Complaints]
    #: It becomes a job of the kind of its name.
    is_job: bool = False
    #: Carries it out, repeatably, and returns what it gives; of those that are no jobs.
    run: Callable[[Mapping[str, Any], Host], Mapping[str, Any]] | None = None
    #: It has programs run, though it is none itself.
    runs: bool = False
    #: It stands for no action but for a step of one: no text names it.
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
    return _ALWAYS | {"job_id"} | frozenset(fields) | programs


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
    """Return True for a complaint that may go away with the values that are not known yet."""
    where = complaint["loc"]
    return bool(open_names) and (not where or where[0] in open_names)


def _complaint(complaint: Any) -> tuple[Path, str]:
    known = {"extra_forbidden": "is not known", "missing": "is needed"}
    text = known.get(complaint["type"], patterns.explain(complaint["msg"].removeprefix("Value error, ")))
    given = "" if complaint["type"] in known or "got" in text else f"; got {short(complaint['input'])}"
    return tuple(complaint["loc"]), f"{text[0].lower()}{text[1:]}{given}"


# -- what the cluster does itself -----------------------------------------------------------------------------------


def _require(**rules: Callable[[Any], str]) -> Callable[[Mapping[str, Any], frozenset[str]], Complaints]:
    """Return a check of parameters: each rule returns what is wrong with a value, empty for a sound one."""

    def check(known: Mapping[str, Any], open_names: frozenset[str]) -> Complaints:
        wrong = {name: rule(known.get(name)) for name, rule in rules.items() if name not in open_names}
        return [((name,), text) for name, text in wrong.items() if text]

    return check


def _rule(is_sound: Callable[[Any], Any], must: str, *, needed: bool = False) -> Callable[[Any], str]:
    """Return a rule that a value `must` obey; one that is not `needed` may be left out."""

    def rule(value: Any) -> str:
        sound = is_sound(value) if needed or value is not None else True
        return "" if sound else f"{must}; got {short(value)}"

    return rule


def _check_by_reader(read: Callable[[Any], Any], *, needed: bool = True) -> Callable[[Any], str]:
    """Return a rule that a value can be read; ValueError says why it cannot."""

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
    if not isinstance(value, dict) or (unknown := sorted(map(str, value.keys() - _OF_GPUS))):
        given = unknown[0] if isinstance(value, dict) else short(value)
        return f"must be an object of {', '.join(_OF_GPUS)}; got {given}"
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
_sha256 = _rule(_matches("[0-9a-f]{64}"), "must be 64 digits 0-9, a-f")
_chunk = _rule(_matches(rf"{catalog.CHUNK}[0-9a-f]{{12}}"), f"must be {catalog.CHUNK} and 12 digits 0-9, a-f")
_names = _rule(
    lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "must be a list of names of secrets",
)
_artifact_name = _rule(
    _matches(artifacts.NAME),
    "must be 1 to 64 small letters, digits, ., _ or -, and begin with a letter or a digit",
    needed=True,
)
_any_artifact = _rule(_matches("[A-Za-z0-9._-]{1,64}"), "must be the id or the name of an artifact", needed=True)


def _check_published(known: Mapping[str, Any], open_names: frozenset[str]) -> Complaints:
    wrong: Complaints = _require(name=_artifact_name)(known, open_names)
    given = (known.keys() | open_names) & {"artifact", "value"}
    if len(given) != 1:
        wrong.append((("artifact",), "give artifact, the id or the name of one, or value, which becomes a file"))
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
    """Return a type that is carried out in steps; `written`: parameters that no reference fills."""
    check = _require(**rules)

    def checked(known: Mapping[str, Any], open_names: frozenset[str]) -> Complaints:
        late = [((one,), "is needed before anything runs: write it out, no reference fills it") for one in written]
        return [*check(known, open_names), *(one for one in late if one[0][0] in open_names)]

    def run(parameters: Mapping[str, Any], host: Host) -> Mapping[str, Any]:
        return host.step(name, parameters)

    return ActionType(
        name=name, parameters=frozenset(rules), gives=_ALWAYS | frozenset(gives), check=checked, run=run, runs=True
    )


def _inner(name: str, *gives: str) -> ActionType:
    """Return the type of a step, whose parameters come from an action that was checked."""
    return ActionType(
        name=name,
        parameters=frozenset(),
        gives=_ALWAYS | frozenset(gives),
        check=lambda _known, _open: [],
        run=lambda parameters, host: host.step(name, parameters),
        inner=True,
    )


#: Types of actions that may begin services.
SERVING = frozenset({"serve", "move"})
#: Types of actions and steps that begin what outlives them: a cancelled workflow undoes these.
UNDONE = SERVING | {"model.batch"}

_FILES, _ANY = _check_location("disk", "dram"), _check_location("disk", "dram", "gpu")
_OWN = (
    ActionType(
        name=APPROVE,
        parameters=frozenset({"message"}),
        gives=_ALWAYS | {"by", "at"},
        check=_require(message=_message),
    ),
    ActionType(
        name="artifact_publish",
        parameters=frozenset({"name", "artifact", "value"}),
        gives=_ALWAYS | {"artifact", "name"},
        check=_check_published,
        run=_publish,
    ),
    ActionType(
        name="artifact_delete",
        parameters=frozenset({"artifact"}),
        gives=_ALWAYS | {"artifact"},
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
    _inner("model.source", "source", "sha256", "secrets"),
    _inner("model.keep", "artifact"),
    _inner("model.at", "artifact"),
    _inner("model.leave"),
    _inner("model.batch", "artifact", "command", "python"),
    _inner("batch.clear"),
    _inner("data.source", "source", "sha256", "secrets"),
    _inner("data.keep", "artifact"),
    _inner("data.at", "chunk_id", "artifact"),
)

#: All types by name. Others may be added, as tests do.
TYPES: dict[str, ActionType] = {one.name: one for one in (*map(_kind, registry.names()), *_OWN)}

#: Most parameters of one action that are looked at.
MAX_PARAMETERS = 200


def wrong_options(options: Mapping[str, Any]) -> Complaints:
    """Return what is wrong with the fields of the job that an action becomes."""
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
