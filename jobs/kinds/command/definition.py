"""Kind `command`: runs any command with its files, once per unit, on runners. See README.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from jobs import errors
from jobs.kinds import program_arguments
from jobs.kinds import program_texts as texts
from jobs.kinds import programs as program
from jobs.kinds.command import titles
from jobs.kinds.command.parameters import Parameters
from jobs.kinds.program_kind import ProgramKind
from jobs.models import Device, Plan, Spec

#: Maximum size of a job's spec in bytes of JSON, slightly below the limit that applies to all jobs.
_MAX_SPEC = 63 << 10
#: Maximum size in bytes of one unit's value. Longer values are stored in an artifact.
#: `_MAX_VALUES` is the maximum total size in bytes of a job's values.
_MAX_VALUE, _MAX_VALUES = 1024, 16 << 20
#: Assumed duration of a unit in seconds, until a duration has been measured.
_UNIT_SECONDS = 1.0
#: Time in seconds for uploading outputs, which the lease of a unit allows in addition to the unit's timeout.
#: `_FOREVER_SECONDS` is the duration of the lease if the unit has no timeout.
_UPLOAD_SECONDS, _FOREVER_SECONDS = 3600.0, 366 * 86400.0


def _total(parameters: Parameters) -> int:
    """Return the number of units of the job."""
    if parameters.items is not None and parameters.items_artifact is not None:
        _refuse("items_artifact", "cannot be combined with items")
    if parameters.items is not None:
        if parameters.count not in (None, len(parameters.items)):
            _refuse("count", f"must be omitted or {len(parameters.items)}, the number of items; got {parameters.count}")
        return len(parameters.items)
    if parameters.items_artifact is not None and parameters.count is None:
        _refuse("count", "is required with items_artifact: the number of lines of its file")
    return parameters.count or 1


def _check_command(parameters: Parameters) -> None:
    command, has_items = parameters.command, _has_items(parameters)
    if isinstance(command, str):
        for place, variable in ((program.UNIT, "$CLUSTER_UNIT"), (program.ITEM, "$CLUSTER_ITEM")):
            if program_arguments.uses(command, place):
                _refuse("command", f"{place} is not replaced in a shell command; use {variable}, or give a list")
        return
    if program_arguments.uses(command, program.ITEM) and not has_items:
        _refuse("command", "{item} requires items: `--items FILE`, or items or items_artifact in the API")
    if (has_items or parameters.count is not None) and (unknown := program_arguments.unknown_placeholder(command)):
        _refuse(
            "command",
            f"{unknown[:80]} is not a placeholder. Use {{unit}} for the unit's number or {{item}} for its item. To keep"
            ' the braces, put the text into a file, write {"literal": TEXT} in the API, or use --shell, which replaces'
            " nothing",
        )


def _has_items(parameters: Parameters) -> bool:
    return parameters.items is not None or parameters.items_artifact is not None


def _check_items(parameters: Parameters) -> None:
    """Reject items that do not fit into the command. Checks only the longest item, and the first item with a NUL."""
    command, items = parameters.command, parameters.items or []
    if isinstance(command, str):
        return
    written = [program.item_text(item) for item in items]
    longest = max(written, key=len, default="")
    with_nul = (text for text in written if "\0" in text)
    for text in (longest, next(with_nul, "")):
        if complaint := program.fit_error(command, {program.UNIT: "0" * 6, program.ITEM: text}):
            _refuse("items", complaint)


def _check_times(parameters: Parameters) -> None:
    stop, timeout = parameters.stop_signal_seconds, parameters.timeout_seconds
    if stop and timeout is None:
        _refuse("stop_signal_seconds", "requires timeout_seconds: SIGTERM is sent this long before the timeout")
    if timeout is not None and stop > timeout:
        _refuse("stop_signal_seconds", f"must be at most timeout_seconds, {timeout:g}; got {stop:g}")


def _check_persistent(parameters: Parameters) -> None:
    """Reject what a program that stays alive between units cannot have."""
    if not parameters.persistent:
        if parameters.input is not None:
            _refuse("input", "requires persistent; use items for other programs")
        return
    command = parameters.command
    if not isinstance(command, str) and (
        used := next((place for place in (program.UNIT, program.ITEM) if program_arguments.uses(command, place)), "")
    ):
        _refuse("command", f"{used} is not replaced in a persistent program, which reads its units from stdin")
    for name in ("outputs", "workspace"):
        if getattr(parameters, name):
            _refuse(name, "cannot be combined with persistent")


def _check_environment(parameters: Parameters) -> None:
    if twice := [name for name in parameters.secrets if name in parameters.env]:
        _refuse("secrets", f"{twice[0]} is also in env; remove one of them")
    if parameters.python is not None and parameters.files is None:
        _refuse("python.requirements", "is a path inside files, so files is required")
    needed = parameters.requirements
    for name in ("gpu_memory_mib", "compute_capability"):
        if getattr(needed, name) is not None and needed.gpus is None:
            _refuse(f"requirements.{name}", "requires gpus: it applies to each GPU")


def _check_size(spec: Spec) -> None:
    if (total := len(texts.as_json(spec))) > _MAX_SPEC:
        sizes = {name: len(texts.as_json(value)) for name, value in spec.items()}
        largest = sorted(sizes, key=lambda name: -sizes[name])[:2]
        parts = " and ".join(f"{name} {sizes[name]}" for name in largest)
        _refuse(
            largest[0],
            f"the job's parameters have {total} bytes as JSON ({parts}); the maximum is {_MAX_SPEC}. Put long texts "
            "into files, and items into items_artifact",
        )


def _refuse(name: str, detail: str) -> None:
    raise errors.InvalidRequest(f"parameters.{name}: {detail}", field=f"parameters.{name}")


class Command(ProgramKind):
    """Kind whose units run one command with its files."""

    model_version = 1
    summary = "Runs any program with its files, once or once per unit, on machines with a runner."
    example: ClassVar[dict[str, Any]] = {"command": ["echo", "unit {unit}"], "count": 3}
    parameters = Parameters

    def plan(self, parameters: Parameters) -> Plan:
        """Check the parameters against each other, and divide the job into units. Raise InvalidRequest on conflict."""
        total = _total(parameters)
        _check_command(parameters)
        _check_items(parameters)
        _check_times(parameters)
        _check_persistent(parameters)
        _check_environment(parameters)
        requirements = parameters.requirements.stated()
        recorded = {**parameters.model_dump(), "requirements": requirements}
        spec = {**recorded, "total": total, "value_bytes": min(_MAX_VALUE, _MAX_VALUES // total)}
        _check_size(spec)
        lasts = parameters.timeout_seconds
        return Plan(
            total=total,
            spec=spec,
            parameters=recorded,
            devices=(Device.RUNNER,),
            cpu_seconds=total * _UNIT_SECONDS,
            max_lease_seconds=_FOREVER_SECONDS if lasts is None else lasts + parameters.grace_seconds + _UPLOAD_SECONDS,
            requirements=requirements,
            unit_seconds=None if lasts is None else lasts + parameters.grace_seconds,
        )

    def artifacts(self, parameters: Parameters) -> Mapping[str, str]:
        """Return the artifacts that the parameters refer to, keyed by parameter name."""
        named = {name: getattr(parameters, name) for name in ("files", "items_artifact")}
        return {name: asked for name, asked in named.items() if asked is not None}

    def secrets(self, parameters: Parameters) -> Sequence[str]:
        """Return the names of the secrets that are passed to the programs."""
        return parameters.secrets

    def title(self, parameters: Mapping[str, Any]) -> str:
        return titles.title(parameters)


KIND = Command()
