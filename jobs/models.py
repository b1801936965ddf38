"""Data classes that coordinators and workers exchange as JSON. They are frozen and keyword-only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

#: Result of a kernel for a range of units: JSON values with integers of any size. Only the kind knows its keys.
Partial: TypeAlias = dict[str, Any]
#: Frozen description of the work, from which kernels compute. `plan` creates it once; it contains only JSON values.
Spec: TypeAlias = Mapping[str, Any]

#: Name of the tenant that always exists.
DEFAULT_TENANT = "default"


class Actor(NamedTuple):
    """The principal of a change, as recorded in the audit log."""

    tenant: str = DEFAULT_TENANT
    #: ID of the API token; empty if the request had no token.
    token: str = ""


#: Principal of requests without a token.
ANONYMOUS = Actor()

#: Duration of a worker's slot in seconds. After it, the worker looks for the best pending job again.
QUANTUM_SECONDS = 5.0

#: Maximum number of units of a job. Lua's doubles are exact up to this number.
MAX_UNITS = 2**53


class Priority(StrEnum):
    #: Interactive queries that need computing. Clients cannot submit jobs with this priority.
    INTERACTIVE = "interactive"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Device(StrEnum):
    GPU = "gpu"
    #: Any GPU or CPU worker, but not a runner.
    ANY = "any"
    CPU = "cpu"
    #: Worker that runs programs, for which kinds have no kernels.
    RUNNER = "runner"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Division of a job into units, computed by a kind from valid parameters."""

    #: Number of units, 1..2^53.
    total: int
    #: Spec for the kernels. It is sent with every lease, so keep it under 64 KiB.
    spec: Spec
    #: Parameters with all defaults and random values filled in, as the API returns them.
    parameters: Mapping[str, Any]
    #: Lease boundaries are multiples of `grain` in (unit + offset).
    grain: int = 1
    offset: int = 0
    #: Devices that have a kernel for this spec.
    devices: tuple[Device, ...] = (Device.CPU,)
    #: Reason why this spec cannot run on GPUs although its kind has a GPU kernel. Returned to users who request a GPU.
    cpu_only: str = ""
    #: Estimated seconds on one CPU core. They determine the size of the first lease, but never the result.
    cpu_seconds: float
    #: Key of measured rates, which are stored by (kind, mode, device).
    mode: str = "default"
    #: Maximum duration of a lease before it counts as hung. Raise this value for units that cannot be divided.
    max_lease_seconds: float = 30.0
    #: Notes for the submitter, also returned with the job.
    notes: tuple[str, ...] = field(default=())
    #: Requirements on the runner, with the keys of `jobs.hosts.requirements`. Only for jobs that need a runner.
    requirements: Mapping[str, Any] = field(default_factory=dict)
    #: Maximum seconds per unit of a program; None: unlimited.
    unit_seconds: float | None = None
    #: IDs of artifacts that the job needs, at most 8, from its own tenant. They are retained as long as the job.
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Binary:
    """Numbers about a job as packed binary columns; see `jobs.encoding.packed`."""

    #: Description for users and for the API reference: content, facts and columns.
    summary: str
    #: Name of the question whose answer contains the numbers; None: the job's own result.
    question: str | None = None
    #: Names of its own query parameters. All other parameters are passed to the question.
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A fact that a finished job proved for the integers lo..hi-1. Marks outlive their jobs."""

    name: str
    lo: int
    hi: int
    #: Further facts about the range, as JSON.
    payload: Any = None


@dataclass(frozen=True, kw_only=True)
class MarkKind:
    #: Sentence that describes the mark to users.
    summary: str
    #: Start of the reported range, which has no gaps.
    origin: int
    #: Merges the payloads of two adjacent ranges, the lower one first.
    join: Callable[[Any, Any], Any] = lambda lower, upper: None


@dataclass(frozen=True, kw_only=True, order=True)
class DeadRange:
    """Units lo..hi-1, which the cluster gave up."""

    lo: int
    hi: int
    #: Number of lanes that died on the range, and number of exceptions that the kernel raised.
    deaths: int
    errors: int
    #: Message of the latest error.
    error: str


@dataclass(frozen=True, kw_only=True)
class ReachedCap:
    """A daily cap that a tenant has reached."""

    #: max_units or max_gpu_seconds.
    cap: str
    #: Amount used today, and the cap, in units or in seconds.
    used: float
    most: float
    #: Seconds until the usage day ends.
    seconds: float


@dataclass(frozen=True, kw_only=True)
class QueuePosition:
    """A job's position in its queue, and the limits of its tenant."""

    #: Number of jobs before it in its queue (only of its tenant, if tenants are registered); None: not in the queue.
    before: int | None = None
    #: Number of the job's active leases.
    leases: int = 0
    #: Tenant of the job; empty if no tenants are registered.
    tenant: str = ""
    #: Number of tenants in the same queue that have used less of their share.
    tenants_before: int = 0
    #: Number of jobs before it in its tenant's backlog; None: it is not in the backlog.
    in_backlog: int | None = None
    #: Maximum number of the tenant's jobs; 0: unlimited.
    max_jobs: int = 0
    #: Maximum number of the tenant's lanes if all are in use, otherwise 0.
    max_lanes: int = 0
    #: The tenant's reached daily caps on units of the job's kind and on GPU seconds.
    units: ReachedCap | None = None
    gpu: ReachedCap | None = None
    #: Name of the runner reserved for the job (empty: none), and number of leases that must end there first.
    kept: str = ""
    kept_leases: int = 0
    #: For a blocked job: numbers of unfinished and of all dependencies, and ID and state of the first ones.
    waits_for: int = 0
    parents: int = 0
    first: tuple[tuple[str, str], ...] = ()
