"""Models that travel between services: frozen, keyword-only, one line a field. JSON on the wire, never pickles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

#: Answer of a kernel for a run of units: JSON values only, integers of any size. Only its kind knows the keys.
Partial: TypeAlias = dict[str, Any]
#: The frozen description a kernel works from; made once by `plan`, JSON values only.
Spec: TypeAlias = Mapping[str, Any]

#: The tenant that always exists.
DEFAULT_TENANT = "default"


class Actor(NamedTuple):
    """Who changes something, as the audit log names it."""

    tenant: str = DEFAULT_TENANT
    #: Id of its API token; empty without one.
    token: str = ""


#: Whoever acts without a token.
ANONYMOUS = Actor()

#: Length of a worker's turn at a job in seconds; then the job parks and the best pending one is next.
QUANTUM_SECONDS = 5.0

#: Units are numbered 0..total-1; Lua's doubles are exact up to here.
MAX_UNITS = 2**53


class Priority(StrEnum):
    #: Reads that need computing; not for submitters.
    INTERACTIVE = "interactive"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Device(StrEnum):
    GPU = "gpu"
    #: Either of GPU and CPU; never a runner.
    ANY = "any"
    CPU = "cpu"
    #: Runs programs: what a kind has no kernel for.
    RUNNER = "runner"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Divisible work that a kind makes of valid parameters."""

    #: Units of work, 1..2^53.
    total: int
    #: Spec for the kernels; travels with every lease, so keep it under 64 KiB.
    spec: Spec
    #: Parameters with every default and drawn value filled in, as the job shows them.
    parameters: Mapping[str, Any]
    #: Leases are cut where (unit + offset) is a multiple of grain.
    grain: int = 1
    offset: int = 0
    #: Devices that have a kernel for this spec.
    devices: tuple[Device, ...] = (Device.CPU,)
    #: Why this spec is not for GPUs although its kind has a kernel for them; shown where a GPU was asked for.
    cpu_only: str = ""
    #: Rough seconds on one CPU core; decides small or not and the first lease. Never changes a result.
    cpu_seconds: float
    #: Rates are remembered under (kind, mode, device).
    mode: str = "default"
    #: Longest a lease may live before it counts as hung. Raise it for units that cannot be cut.
    max_lease_seconds: float = 30.0
    #: Shown to the submitter and with the job.
    notes: tuple[str, ...] = field(default=())
    #: What a runner must have for it; the keys are those of `jobs.hosts.requirements`. For jobs of runners alone.
    requirements: Mapping[str, Any] = field(default_factory=dict)
    #: Seconds that one unit takes at most, of programs; None: any number.
    unit_seconds: float | None = None
    #: Ids of artifacts of its tenant that it needs, at most 8; they are kept as long as the job is.
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Binary:
    """Numbers about a job as packed columns; see `jobs.encoding.packed`."""

    #: For people and the API's description: what it is, its facts and its columns.
    summary: str
    #: Made of the answer to this question; None: of the job's own result.
    question: str | None = None
    #: Names in the query that are its own; the others go to the question.
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Fact that a finished job proved of the integers lo..hi-1, of any size; outlives the job."""

    name: str
    lo: int
    hi: int
    #: Further facts about the range, as JSON.
    payload: Any = None


@dataclass(frozen=True, kw_only=True)
class MarkKind:
    #: One sentence for people.
    summary: str
    #: The range that begins here is the one that counts.
    origin: int
    #: The payload of two ranges that touch, the lower one first.
    join: Callable[[Any, Any], Any] = lambda lower, upper: None


@dataclass(frozen=True, kw_only=True, order=True)
class DeadRange:
    """Units lo..hi-1, which were given up."""

    lo: int
    hi: int
    #: Lanes that died on it, and times that the kernel raised.
    deaths: int
    errors: int
    #: The last error.
    error: str


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Daily cap of a tenant that is reached."""

    #: max_units or max_gpu_seconds.
    cap: str
    #: Units, or seconds.
    used: float
    most: float
    #: Seconds until the day turns.
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a job waits, and what its tenant is allowed."""

    #: Jobs before it in its queue; of its tenant alone, where tenants are registered. None: it is not in the queue.
    before: int | None = None
    #: Leases of it.
    leases: int = 0
    #: Its tenant, where tenants are registered.
    tenant: str = ""
    #: Tenants with jobs in its queue that were given less.
    tenants_before: int = 0
    #: Jobs before it in its tenant's backlog; None: it is not in the backlog.
    in_backlog: int | None = None
    #: Most jobs that its tenant may have; 0: any number.
    max_jobs: int = 0
    #: Most lanes that its tenant may use, if it uses them all; else 0.
    max_lanes: int = 0
    #: The tenant's daily caps on units of the job's kind and on GPU seconds, if they are reached.
    units: Spent | None = None
    gpu: Spent | None = None
    #: The runner that is kept for it, and how many leases end there before it starts; empty: none is.
    kept: str = ""
    kept_leases: int = 0
    #: Of a blocked job: how many jobs it waits for, of how many, and the id and state of the first of those.
    waits_for: int = 0
    parents: int = 0
    first: tuple[tuple[str, str], ...] = ()
