"""Programs: any command, with its files, as many times as there are units. Runners execute them; see README.md."""

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

#: Bytes of a spec as JSON, somewhat less than the most that a job may have.
_MAX_SPEC = 63 << 10
#: Bytes of a unit's value in the partial, and of the values of all units; a longer value goes into an artifact.
_MAX_VALUE, _MAX_VALUES = 1024, 16 << 20
#: Seconds on one core, by which a job is estimated before anything is measured.
_UNIT_SECONDS = 1.0
#: Beyond its timeout a lease lives this long, while outputs are uploaded; and for how long without a timeout.
_UPLOAD_SECONDS, _FOREVER_SECONDS = 3600.0, 366 * 86400.0


def _total(parameters: Parameters) -> int:
    """Return the number of units."""
    if parameters.items is not None and parameters.items_artifact is not None:
        _refuse("items_artifact", "give it or items, not both")
    if parameters.items is not None:
        if parameters.count not in (None, len(parameters.items)):
            _refuse("count", f"there are {len(parameters.items)} items; leave count out; got {parameters.count}")
        return len(parameters.items)
    if parameters.items_artifact is not None and parameters.count is None:
        _refuse("count", "is needed with items_artifact: the lines of its file")
    return parameters.count or 1


def _check_command(parameters: Parameters) -> None:
    command, has_items = parameters.command, _has_items(parameters)
    if isinstance(command, str):
        for place, variable in ((program.UNIT, "$CLUSTER_UNIT"), (program.ITEM, "$CLUSTER_ITEM")):
            if program_arguments.uses(command, place):
                _refuse("command", f"{place} is not filled into a text for the shell; write {variable}, or give a list")
        return
    if program_arguments.uses(command, program.ITEM) and not has_items:
        _refuse("command", "{item} needs items: `--items FILE`, or items or items_artifact in the API")
    if (has_items or parameters.count is not None) and (unknown := program_arguments.unknown_placeholder(command)):
        _refuse(
            "command",
            f"{unknown[:80]} is not a placeholder. There are two: {{unit}} is the unit's number, {{item}} its item."
            ' To keep braces as they are, put the text into a file, write {"literal": TEXT} in the API, or run a shell'
            " (--shell), in which nothing is replaced",
        )


def _has_items(parameters: Parameters) -> bool:
    return parameters.items is not None or parameters.items_artifact is not None


def _check_items(parameters: Parameters) -> None:
    """Refuse items that cannot be filled into the command: the longest stands for all, but for a NUL."""
    command, items = parameters.command, parameters.items or []
    if isinstance(command, str):
        return
    written = [program.item_text(item) for item in items]
    longest = max(written, key=len, default="")
    with_nul = (text for text in written if "\0" in text)
    for text in (longest, next(with_nul, "")):
        if complaint := program.does_not_fit(command, {program.UNIT: "0" * 6, program.ITEM: text}):
            _refuse("items", complaint)


def _check_times(parameters: Parameters) -> None:
    stop, timeout = parameters.stop_signal_seconds, parameters.timeout_seconds
    if stop and timeout is None:
        _refuse("stop_signal_seconds", "needs timeout_seconds: SIGTERM comes that long before it")
    if timeout is not None and stop > timeout:
        _refuse("stop_signal_seconds", f"is at most timeout_seconds, {timeout:g}; got {stop:g}")


def _check_environment(parameters: Parameters) -> None:
    if twice := [name for name in parameters.secrets if name in parameters.env]:
        _refuse("secrets", f"{twice[0]} is in env too; give it once")
    if parameters.python is not None and parameters.files is None:
        _refuse("python.requirements", "is a path in files; give files")
    needed = parameters.requirements
    for name in ("gpu_memory_mib", "compute_capability"):
        if getattr(needed, name) is not None and needed.gpus is None:
            _refuse(f"requirements.{name}", "says what each GPU must have; give gpus, too")


def _check_size(spec: Spec) -> None:
    if (total := len(texts.as_json(spec))) > _MAX_SPEC:
        sizes = {name: len(texts.as_json(value)) for name, value in spec.items()}
        largest = sorted(sizes, key=lambda name: -sizes[name])[:2]
        parts = " and ".join(f"{name} {sizes[name]}" for name in largest)
        _refuse(
            largest[0],
            f"the job's parameters have {total} bytes as JSON ({parts}); at most {_MAX_SPEC}: put long texts into "
            "files, and items into items_artifact",
        )


def _refuse(name: str, detail: str) -> None:
    raise errors.InvalidRequest(f"parameters.{name}: {detail}", field=f"parameters.{name}")


class Command(ProgramKind):
    """Programs with their files."""

    model_version = 1
    summary = "Any program, with its files, once or once a unit, on machines with a runner."
    example: ClassVar[dict[str, Any]] = {"command": ["echo", "unit {unit}"], "count": 3}
    parameters = Parameters

    def plan(self, parameters: Parameters) -> Plan:
        """Check the rules between parameters and lay out the units. Raise InvalidRequest naming the parameter."""
        total = _total(parameters)
        _check_command(parameters)
        _check_items(parameters)
        _check_times(parameters)
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
        """Return the artifacts that the parameters name, by the parameter."""
        named = {name: getattr(parameters, name) for name in ("files", "items_artifact")}
        return {name: asked for name, asked in named.items() if asked is not None}

    def secrets(self, parameters: Parameters) -> Sequence[str]:
        """Return the names of the secrets that the programs are given."""
        return parameters.secrets

    def title(self, parameters: Mapping[str, Any]) -> str:
        return titles.title(parameters)


KIND = Command()
