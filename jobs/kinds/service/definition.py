"""Replicas of services: a program that stays up and answers on a port. The leader submits them; see README.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jobs import errors
from jobs.kinds import program_texts
from jobs.kinds.program_kind import ProgramKind
from jobs.kinds.service.parameters import Parameters
from jobs.models import Device, Plan

#: Bytes of a spec as JSON, somewhat less than the most that a job may have.
_MAX_SPEC = 63 << 10
#: Seconds of a lease that has no end.
_FOREVER_SECONDS = 366 * 86400.0


class Service(ProgramKind):
    """Replicas of services."""

    model_version = 1
    summary = "A replica of a service: a program that stays up, on a machine with a runner."
    example: ClassVar[dict[str, Any]] = {
        "service": "web",
        "engine": "http",
        "command": ["python3", "-m", "http.server", "{port}"],
        "health": "/",
    }
    parameters = Parameters
    #: The leader keeps as many replicas as a service wants.
    is_for_leader = True
    is_endless = True

    def plan(self, parameters: Parameters) -> Plan:
        """Lay out the one unit of a replica. Raise InvalidRequest naming the parameter."""
        requirements = parameters.requirements.stated()
        recorded = {**parameters.model_dump(), "requirements": requirements}
        # The leader begins anew what died: a replica has one attempt.
        spec = {
            **recorded,
            "total": 1,
            "retries": {"max": 0, "initial_delay_seconds": 0, "factor": 1, "max_delay_seconds": 0, "jitter": False},
        }
        if (size := len(program_texts.as_json(spec))) > _MAX_SPEC:
            detail = f"parameters.command: the replica's parameters have {size} bytes as JSON; at most {_MAX_SPEC}"
            raise errors.InvalidRequest(detail, field="parameters.command")
        return Plan(
            total=1,
            spec=spec,
            parameters=recorded,
            devices=(Device.RUNNER,),
            cpu_seconds=1.0,
            max_lease_seconds=_FOREVER_SECONDS,
            requirements=requirements,
        )

    def artifacts(self, parameters: Parameters) -> Mapping[str, str]:
        """Return the artifact with the replica's files, by the parameter."""
        return {} if parameters.files is None else {"files": parameters.files}

    def title(self, parameters: Mapping[str, Any]) -> str:
        """Return the service that the replica is one of, and its engine."""
        return f"{parameters['service']}: {parameters['engine']}"


KIND = Service()
