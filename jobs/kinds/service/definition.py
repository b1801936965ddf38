"""Kind `service`: a replica of a service, which is a program that answers on a port. See README.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jobs import errors
from jobs.kinds import program_texts
from jobs.kinds.program_kind import ProgramKind
from jobs.kinds.service.parameters import Parameters
from jobs.models import Device, Plan

#: Maximum size of a job's spec in bytes of JSON, slightly below the limit that applies to all jobs.
_MAX_SPEC = 63 << 10
#: Lease time in seconds of a replica, which runs without a time limit.
_FOREVER_SECONDS = 366 * 86400.0


class Service(ProgramKind):
    """Kind whose jobs are replicas of services."""

    model_version = 1
    summary = "Runs a replica of a service: a long-running program on a machine with a runner."
    example: ClassVar[dict[str, Any]] = {
        "service": "web",
        "engine": "http",
        "command": ["python3", "-m", "http.server", "{port}"],
        "health": "/",
    }
    parameters = Parameters
    is_for_leader = True
    is_endless = True

    def plan(self, parameters: Parameters) -> Plan:
        """Plan the single unit of a replica. Raise InvalidRequest if the parameters are too long."""
        requirements = parameters.requirements.stated()
        recorded = {**parameters.model_dump(), "requirements": requirements}
        # A replica has one attempt, because the leader replaces a failed replica with a new job.
        spec = {
            **recorded,
            "total": 1,
            "retries": {"max": 0, "initial_delay_seconds": 0, "factor": 1, "max_delay_seconds": 0, "jitter": False},
        }
        if (size := len(program_texts.as_json(spec))) > _MAX_SPEC:
            detail = f"parameters.command: the parameters have {size} bytes as JSON; the maximum is {_MAX_SPEC}"
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
        """Return the artifact with the replica's files, keyed by parameter name."""
        return {} if parameters.files is None else {"files": parameters.files}

    def title(self, parameters: Mapping[str, Any]) -> str:
        """Return the name of the service, which is also the name of its model."""
        return str(parameters["service"])


KIND = Service()
