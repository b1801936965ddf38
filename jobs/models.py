"""Data classes that coordinators and workers exchange as JSON. They are frozen and keyword-only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

#: Result of a kernel for a range of units, as JSON values. Integers can have any size. Only the kind knows the keys.
Partial: TypeAlias = dict[str, Any]
#: Immutable specification of a job's work, from which kernels compute. It contains only JSON values.
Spec: TypeAlias = Mapping[str, Any]

#: Name of the tenant that always exists.
DEFAULT_TENANT = "default"


class Actor(NamedTuple):
    """The user or program that made a change, as recorded in the audit log."""

    tenant: str = DEFAULT_TENANT
    #: ID of the API token, or empty if the request had no token.
    token: str = ""


#: Actor of requests without a token.
ANONYMOUS = Actor()

#: Seconds for which a worker leases units of one job, before it looks for the best pending job again.
QUANTUM_SECONDS = 5.0

#: Maximum number of units of a job. Lua represents integers exactly up to this number.
MAX_UNITS = 2**53


class Priority(StrEnum):
    #: Priority of questions that need a computation. Clients cannot submit jobs with this priority.
    INTERACTIVE = "interactive"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Device(StrEnum):
    GPU = "gpu"
    #: Any CPU or GPU worker, but no runner.
    ANY = "any"
    CPU = "cpu"
    #: Worker that runs programs instead of kernels.
    RUNNER = "runner"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Division of a job into units, as computed by its kind from valid parameters."""

    #: Number of units, from 1 to 2^53.
    total: int
    #: Specification for the kernels. It is sent with every lease, so keep it under 64 KiB.
    spec: Spec
    #: Parameters as the API returns them. All defaults and random values are filled in.
    parameters: Mapping[str, Any]
    #: Granularity of leases in units. At each boundary of a lease, unit + `offset` is a multiple of `grain`.
    grain: int = 1
    offset: int = 0
    #: Types of devices that can run this specification.
    devices: tuple[Device, ...] = (Device.CPU,)
    #: Reason why this job cannot run on GPUs although its kind has a GPU kernel. Users who request a GPU get this text.
    cpu_only: str = ""
    #: Estimated seconds on one CPU core. The estimate affects only the sizes of leases, never the result.
    cpu_seconds: float
    #: Name of the computation's variant. Measured rates are stored by kind, mode and device.
    mode: str = "default"
    #: Maximum duration in seconds of a lease before it counts as hung. Raise this value for units that take longer.
    max_lease_seconds: float = 30.0
    #: Notes for the user who submitted the job, also returned with the job.
    notes: tuple[str, ...] = field(default=())
    #: Requirements on the runner, with the keys of `jobs.hosts.requirements`. Empty for jobs without a runner.
    requirements: Mapping[str, Any] = field(default_factory=dict)
    #: Maximum seconds per unit of a program, or None if the time is not limited.
    unit_seconds: float | None = None
    #: IDs of the tenant's artifacts that the job needs, at most 8. They are kept as long as the job.
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Binary:
    """Definition of numbers about a job that clients can read as packed binary columns."""

    #: Description of the content for users and for the API reference.
    summary: str
    #: Name of the question whose answer contains the numbers, or None for the job's own result.
    question: str | None = None
    #: Names of the query parameters that only the binary form has. The question gets all other parameters.
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Fact that a finished job proved for the integers from lo to hi-1. Marks outlive their jobs."""

    name: str
    lo: int
    hi: int
    #: Additional facts about the range, as JSON.
    payload: Any = None


@dataclass(frozen=True, kw_only=True)
class MarkKind:
    #: Sentence that describes the mark to users.
    summary: str
    #: Start of the proven range that is reported to users. This range has no gaps.
    origin: int
    #: Function that merges the payloads of two adjacent ranges. The first argument belongs to the lower range.
    join: Callable[[Any, Any], Any] = lambda lower, upper: None


@dataclass(frozen=True, kw_only=True, order=True)
class DeadRange:
    """Range of units that failed permanently: units lo to hi-1."""

    lo: int
    hi: int
    #: Number of lanes that died while they computed the range.
    deaths: int
    #: Number of kernel exceptions during the computation of the range.
    errors: int
    #: Latest error message about the range.
    error: str


@dataclass(frozen=True, kw_only=True)
class ReachedCap:
    """Daily limit that a tenant has reached."""

    #: Name of the limit: max_units or max_gpu_seconds.
    cap: str
    #: Amount that the tenant used today, in units or in seconds.
    used: float
    #: Limit that the tenant has reached, in units or in seconds.
    most: float
    #: Seconds until the current usage day ends.
    seconds: float


@dataclass(frozen=True, kw_only=True)
class QueuePosition:
    """Position of a job in its queue, and the limits of its tenant."""

    #: Number of jobs before this job in its queue, or None if it is not in the queue. Other tenants' jobs do not count.
    before: int | None = None
    #: Number of active leases of the job.
    leases: int = 0
    #: Tenant of the job, or empty if no tenants are registered.
    tenant: str = ""
    #: Number of tenants in the same queue that have used a smaller part of their share.
    tenants_before: int = 0
    #: Number of jobs before this job in its tenant's backlog, or None if it is not in the backlog.
    in_backlog: int | None = None
    #: Maximum number of the tenant's jobs. 0 means unlimited.
    max_jobs: int = 0
    #: Maximum number of the tenant's lanes, if all of them are in use. Otherwise 0.
    max_lanes: int = 0
    #: Daily limits that the tenant has reached, on units of the job's kind and on GPU seconds.
    units: ReachedCap | None = None
    gpu: ReachedCap | None = None
    #: Name of the runner that is reserved for the job, or empty if there is none.
    kept: str = ""
    kept_leases: int = 0
    #: Number of unfinished dependencies of a blocked job, or 0.
    waits_for: int = 0
    parents: int = 0
    first: tuple[tuple[str, str], ...] = ()
