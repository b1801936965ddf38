"""Replicas of services: a program that stays up and answers on a port. The leader submits them; see README.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs import errors
from jobs.kinds import program_partials, program_texts
from jobs.kinds.program_checks import complaint
from jobs.kinds.program_partials import finished_ranges, finished_units, merge
from jobs.kinds.program_result import RESULT
from jobs.kinds.service.parameters import Parameters
from jobs.models import Device, Partial, Plan, Spec

__all__ = [
    "ENDLESS", "EXAMPLE", "FOR_LEADER", "MODEL_VERSION", "RESULT", "SUMMARY", "Parameters", "artifacts", "complaint",
    "finished_ranges", "finished_units", "merge", "plan", "result", "secrets", "title",
]  # fmt: skip

MODEL_VERSION = 1
SUMMARY = "A replica of a service: a program that stays up, on a machine with a runner."
EXAMPLE: dict[str, Any] = {
    "service": "web", "engine": "http", "command": ["python3", "-m", "http.server", "{port}"], "health": "/",
}  # fmt: skip
#: Nobody submits its jobs but the leader, which keeps as many as a service wants.
FOR_LEADER = True
#: Its programs run until somebody ends them, and take no slot of their runner.
ENDLESS = True

#: Bytes of a spec as JSON, somewhat less than the most that a job may have.
_MAX_SPEC = 63 << 10
#: Seconds of a lease that has no end.
_FOREVER_SECONDS = 366 * 86400.0


def plan(parameters: Parameters) -> Plan:
    """Lay out the one unit of a replica. Raise InvalidRequest naming the parameter."""
    requirements = _canonical(parameters)
    recorded = {**parameters.model_dump(), "requirements": requirements}
    # The leader begins anew what died: a replica has one attempt.
    spec = {**recorded, "total": 1, "retries": {"max": 0, "initial_delay_seconds": 0, "factor": 1,
            "max_delay_seconds": 0, "jitter": False}}  # fmt: skip
    if (size := len(program_texts.as_json(spec))) > _MAX_SPEC:
        detail = f"parameters.command: the replica's parameters have {size} bytes as JSON; at most {_MAX_SPEC}"
        raise errors.InvalidRequest(detail, field="parameters.command")
    return Plan(
        total=1, spec=spec, parameters=recorded, devices=(Device.RUNNER,), cpu_seconds=1.0,
        max_lease_seconds=_FOREVER_SECONDS, requirements=requirements,
    )  # fmt: skip


def result(spec: Spec, partial: Partial) -> dict[str, Any]:
    """Return how long the replica was up, where it ended by itself."""
    return program_partials.result(partial)


def artifacts(parameters: Parameters) -> Mapping[str, str]:
    """Return the artifact with the replica's files, by the parameter."""
    return {} if parameters.files is None else {"files": parameters.files}


def secrets(parameters: Parameters) -> Sequence[str]:
    """Return no names: a replica is given no secrets."""
    return ()


def title(parameters: Mapping[str, Any]) -> str:
    """Return the service that the replica is one of, and its engine."""
    return f"{parameters['service']}: {parameters['engine']}"


def _canonical(parameters: Parameters) -> dict[str, Any]:
    """Return what is asked for alone, by name: equal requirements are equal texts."""
    needed = parameters.requirements.model_dump()
    return {name: value for name, value in sorted(needed.items()) if value not in (None, [])}
