"""Types of actions: every kind of job, and what the cluster itself does: approvals, artifacts, and later services."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from pydantic import ValidationError

from coordinator import patterns
from coordinator.jobs import submissions
from coordinator.workflows.references import Path
from jobs import errors
from jobs.kinds import registry
from jobs.numbers import short
from jobs.store import artifacts

#: Waits until a person lets it go on.
APPROVE = "approve"
#: Longest message of an approval.
_MAX_MESSAGE = 1000
#: Fields that every action gives besides those of its type.
_ALWAYS = frozenset({"state"})
_ARTIFACT = re.compile(r"[A-Za-z0-9._-]{1,64}")

#: Path and text of what is wrong with parameters.
Complaints: TypeAlias = list[tuple[Path, str]]


class Host(Protocol):
    """Artifacts of a workflow's tenant, for actions that the cluster carries out itself."""

    def publish(self, name: str, artifact: str | None, value: Any) -> str:
        """Let a name point to an artifact, or to a new one with a value as JSON; return its id."""
        ...

    def delete(self, artifact: str) -> None:
        """Delete an artifact by its id or name; nothing where there is none."""
        ...


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
    #: What the cluster lacks to carry it out; empty: nothing.
    lacks: str = ""


def _kind(name: str) -> ActionType:
    definition = registry.definition(name)
    fields = frozenset(definition.Parameters.model_fields)
    return ActionType(name=name, parameters=fields, gives=_given(name), is_job=True, check=_checked_by(name))


def _given(kind: str) -> frozenset[str] | None:
    described = registry.describing(kind)
    fields = described.RESULT.get("properties") if described else None
    if fields is None:
        return None
    programs = {"value", "values", "artifact", "artifacts"} if registry.running(kind) else set()
    return _ALWAYS | {"job_id"} | frozenset(fields) | programs


def _checked_by(kind: str) -> Callable[[Mapping[str, Any], frozenset[str]], Complaints]:
    definition = registry.definition(kind)

    def check(known: Mapping[str, Any], open_names: frozenset[str]) -> Complaints:
        model = definition.Parameters
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
    text = known.get(complaint["type"], patterns.stated(complaint["msg"].removeprefix("Value error, ")))
    given = "" if complaint["type"] in known or "got" in text else f"; got {short(complaint['input'])}"
    return tuple(complaint["loc"]), f"{text[0].lower()}{text[1:]}{given}"


# -- what the cluster does itself -----------------------------------------------------------------------------------


def _needed(**rules: Callable[[Any], str]) -> Callable[[Mapping[str, Any], frozenset[str]], Complaints]:
    """Return a check of parameters: each rule returns what is wrong with a value, empty for a sound one."""

    def check(known: Mapping[str, Any], open_names: frozenset[str]) -> Complaints:
        wrong = {name: rule(known.get(name)) for name, rule in rules.items() if name not in open_names}
        return [((name,), text) for name, text in wrong.items() if text]

    return check


def _text(most: int, *, needed: bool = True) -> Callable[[Any], str]:
    def rule(value: Any) -> str:
        if value is None and not needed:
            return ""
        sound = isinstance(value, str) and 1 <= len(value) <= most
        return "" if sound else f"must be a text of 1..{most} characters; got {short(value)}"

    return rule


def _port(value: Any) -> str:
    sound = value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535)
    return "" if sound else f"must be a port, 1..65535; got {short(value)}"


def _flag(value: Any) -> str:
    return "" if value is None or isinstance(value, bool) else f"must be true or false; got {short(value)}"


def _artifact_name(value: Any) -> str:
    sound = isinstance(value, str) and re.fullmatch(artifacts.NAME, value)
    rule = "must be 1 to 64 small letters, digits, ., _ or -, and begin with a letter or a digit"
    return "" if sound else f"{rule}; got {short(value)}"


def _any_artifact(value: Any) -> str:
    sound = isinstance(value, str) and _ARTIFACT.fullmatch(value)
    return "" if sound else f"must be the id or the name of an artifact; got {short(value)}"


def _published(known: Mapping[str, Any], open_names: frozenset[str]) -> Complaints:
    wrong: Complaints = _needed(name=_artifact_name)(known, open_names)
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


def _later(name: str, lacks: str, gives: Sequence[str], **rules: Callable[[Any], str]) -> ActionType:
    return ActionType(
        name=name, parameters=frozenset(rules), gives=_ALWAYS | frozenset(gives), check=_needed(**rules), lacks=lacks
    )  # fmt: skip


_NAME, _PLACE, _WHERE = _text(200), _text(300), _text(2048)
_OWN = (
    ActionType(
        name=APPROVE, parameters=frozenset({"message"}), gives=_ALWAYS | {"by", "at"},
        check=_needed(message=_text(_MAX_MESSAGE, needed=False)),
    ),
    ActionType(
        name="artifact_publish", parameters=frozenset({"name", "artifact", "value"}),
        gives=_ALWAYS | {"artifact", "name"}, check=_published, run=_publish,
    ),
    ActionType(
        name="artifact_delete", parameters=frozenset({"artifact"}), gives=_ALWAYS | {"artifact"},
        check=_needed(artifact=_any_artifact), run=_delete,
    ),
    _later("download", "models", ("model_name",), model_name=_NAME, target_device=_PLACE),
    _later("copy", "models", ("model_name",), model_name=_NAME, source_device=_PLACE, target_device=_PLACE),
    _later("move", "models", ("model_name",), model_name=_NAME, source_device=_PLACE, target_device=_PLACE,
           keep_source=_flag),
    _later("serve", "services", ("service_id", "url"), model_name=_NAME, device=_PLACE, port=_port),
    _later("inference", "services", ("output",), model_name=_NAME, input_data=_WHERE, output_device=_PLACE),
    _later("data_create", "data", ("chunk_id",), source=_WHERE, target_device=_PLACE),
    _later("data_transfer", "data", ("chunk_id",), data_id=_WHERE, target_device=_PLACE),
)  # fmt: skip

#: All types by name. Others may be added, as tests do.
TYPES: dict[str, ActionType] = {one.name: one for one in (*map(_kind, registry.names()), *_OWN)}

#: Most parameters of one action that are looked at.
MAX_PARAMETERS = 200


def wrong_options(options: Mapping[str, Any]) -> Complaints:
    """Return what is wrong with the fields of the job that an action becomes."""
    try:
        submissions.read({"type": "any", **options})
    except errors.InvalidRequest as error:
        field = error.field or ""
        return [((field,), error.detail.removeprefix(f"{field}: "))]
    allowed = {"priority": ("high", "normal", "low"), "device": ("gpu", "any", "cpu", "runner")}
    return [
        ((name,), f"must be one of {', '.join(words)}; got {short(options[name])}")
        for name, words in allowed.items()
        if options.get(name, words[0]) not in words
    ]
