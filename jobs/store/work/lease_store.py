"""Interface through which workers use leases. `Store` implements it on Redis, and an API client over HTTPS.

Methods with a docstring are calls of this API: `jobs.worker.api.calls` derives route and request from them.
`docs/lease-protocol.md` specifies each call. The methods in the parts of `Store` have the same names. Every call can be
repeated after a lost response. The errors are defined in `jobs.store.server.connection`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field

from jobs.hosts.requirements import Offer
from jobs.partial_reader import GatheredPartials
from jobs.store import profiles
from jobs.store.profiles import Order, Recording, Reported
from jobs.store.work import bounds
from jobs.store.work.leases import Finished, Grant, Merge
from jobs.store.work.slots import TAKE, Held, JobFacts, Taken

#: Maximum number of small jobs that one call of a worker finishes.
MAX_FINISHED = TAKE * 1024

#: Record of a worker: the fields of a Redis hash.
Row = dict[str, str | int | float]


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """Heartbeat that a worker sends every second, with its active leases and its slot."""

    worker: str
    born: str
    #: Function that returns the worker's record. It is called after leases were extended, because it can be slow.
    row: Callable[[], Row]
    #: Job ID, token and progress of each lease.
    leases: tuple[tuple[str, str, int], ...] = ()
    #: True if the worker has a slot.
    slot: bool = False


@dataclass(frozen=True, kw_only=True)
class Heard:
    """Response to a worker's heartbeat."""

    leases: Annotated[tuple[int, ...], Field(description="Reply of HEARTBEAT for each lease, in order.")]
    word: Annotated[str, Field(description="Reply of HEARTBEAT.")]
    follow: Annotated[
        tuple[str, ...],
        Field(description="Jobs of these leases whose output is being followed; for runners."),
    ] = ()
    attach: Annotated[
        tuple[tuple[str, int, str], ...],
        Field(description="Job, unit and ID of each shell that was requested in a unit of these leases; for runners."),
    ] = ()
    profiles: Annotated[
        tuple[Order, ...] | None,
        Field(description="Active profiles; null if unknown."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """Response to a claim of GPUs."""

    held: Annotated[
        bool, Field(description="True if the worker has claimed all of the GPUs; otherwise it has claimed none.")
    ]
    wanted: Annotated[
        str,
        Field(description="For GPU workers: highest priority of the programs that wait for one of these GPUs."),
    ] = ""
    by: Annotated[
        str,
        Field(
            description="Reason of a rejection: worker or program (has a claim), or wanted (programs have precedence)."
        ),
    ] = ""


class FleetCalls(Protocol):
    def birth(self) -> str: ...

    def heartbeat(
        self, worker: str, born: str, facts: Mapping[str, str | int | float], *, leaving: bool = False
    ) -> str: ...

    def claim(self, gpus: bounds.GpuNames, worker: str, priority: bounds.ClaimPriority = "") -> Claimed:
        """Claim or renew GPUs by UUID, all or none. A claim lasts 5 seconds; a claim by a runner lasts 650 seconds.

        The response tells a GPU worker the priority of the programs that wait for its GPU.
        """

    def give_up(self, gpus: bounds.GpuNames, worker: str, priority: bounds.ClaimPriority = "") -> None:
        """Release the worker's claims to GPUs."""


class SlotCalls(Protocol):
    def next(
        self,
        worker: str,
        queues: Iterable[str],
        *,
        popped: str = "",
        lanes: int = 1,
        take: int = ...,
        kinds: Mapping[str, int] | None = None,
        offer: Offer | None = None,
    ) -> Held | Taken | str: ...

    def leave(self, worker: str) -> None:
        """End the worker's slot, so that other workers can take its job."""

    def facts(self, jobs: Sequence[str], device: str) -> list[JobFacts | None]: ...

    def waiting(self, listened: bounds.QueueNames) -> list[int]:
        """Return the number of pending jobs in each requested queue."""

    def unsupported(self) -> list[str]:
        """Return the kinds of the jobs that wait for a worker which computes their kind."""


class LeaseCalls(Protocol):
    def lease(
        self,
        job: bounds.JobId,
        token: bounds.LeaseToken,
        *,
        want: Annotated[bounds.SomeUnits, Field(description="Number of units of a typical lease of this lane.")],
        least: Annotated[
            bounds.SomeUnits, Field(description="Minimum number of units that is worth the overhead of a lease.")
        ] = 1,
        worker: str,
        lane: bounds.Lane = "0",
        rate: bounds.Rate = 0.0,
        higher: Annotated[bounds.QueueNames, Field(description="Queues whose work ends the worker's slot.")] = (),
    ) -> Grant | str:
        """Lease a range of the job in the worker's slot for a lane. The same token gets the same range again.

        If no range is available, the response is wait, yield, finishing or gone. For any other job, it is gone.
        """

    def commit(
        self,
        job: bounds.JobId,
        token: bounds.LeaseToken,
        upto: bounds.SomeUnits,
        partial: bounds.Content,
        *,
        ms: Annotated[bounds.Milliseconds, Field(description="Lane time in milliseconds.")],
        worker: str,
        device: bounds.WorkDevice,
        pace: bounds.Pace = 0.0,
        device_ms: Annotated[
            bounds.Milliseconds,
            Field(description="Device time of the lease in milliseconds. Lanes that share the device share its time."),
        ] = 0,
        joules: Annotated[
            bounds.Joules | None, Field(description="The lease's share of the device's energy, in joules.")
        ] = None,
        keep: Annotated[bool, Field(description="True to continue the lease with the units from `upto` on.")] = False,
        lo: Annotated[
            bounds.Units | None, Field(description="First unit of the partial, for a continued lease.")
        ] = None,
    ) -> Merge:
        """Store the partial result of the units below `upto` once. Then end the lease, or keep its remaining units."""

    def done1_all(
        self,
        finished: Annotated[Sequence[Finished], Field(min_length=1, max_length=MAX_FINISHED)],
        *,
        worker: str,
        device: bounds.WorkDevice,
    ) -> list[bool]:
        """Commit and finish small jobs, each of which has one lease. False means that the lease had already ended."""

    def release(self, job: bounds.JobId, token: bounds.LeaseToken) -> bool:
        """End a lease whose units were not computed, and release its units. Return False if the lease had already
        ended.
        """

    def crash(self, job: bounds.JobId, token: bounds.LeaseToken) -> bool:
        """End a lease whose lane died."""

    def fail(self, job: bounds.JobId, token: bounds.LeaseToken, error: bounds.Reason) -> bool:
        """End a lease whose kernel raised an exception."""

    def fail_unit(
        self,
        job: bounds.JobId,
        token: bounds.LeaseToken,
        error: bounds.Reason,
        *,
        most: Annotated[int, Field(ge=0, le=1000, description="Maximum number of errors before the unit is given up.")],
        wait_ms: Annotated[
            int, Field(ge=0, le=bounds.MAX_WAIT_MS, description="Milliseconds before the unit can be leased again.")
        ],
        row: bounds.FailureRow = "",
        unit: Annotated[
            bounds.Units | None,
            Field(description="First unit of the lease; if another one is first, the call is stale."),
        ] = None,
    ) -> bool:
        """End a lease whose first unit failed. The unit is retried later, or fails permanently.

        The other units are leased next.
        """

    def split(self, job: bounds.JobId, token: bounds.LeaseToken, at: bounds.Units) -> bool:
        """Shorten a lease so that it ends before unit `at`. Other lanes can lease the units from `at` on."""


class ResultCalls(Protocol):
    def gather(self, job: str, limit: int = ...) -> GatheredPartials: ...

    def fold(self, job: str, gathered: GatheredPartials, accumulator: bytes) -> bool: ...

    def finish(self, job: str, gathered: GatheredPartials, result: bytes, marks: str = ...) -> bool: ...

    def abort(self, job: str, error: str) -> bool: ...

    def count_derive_crash(self, job: str, token: str, error: str) -> bool: ...


class ProfileCalls(Protocol):
    def report(
        self,
        profile_id: bounds.ProfileId,
        worker: str,
        devices: bounds.SampledDevices,
        recordings: Annotated[Sequence[Recording], Field(max_length=256)],
    ) -> Reported:
        """Claim devices to sample for a profile, report recordings, and get the parts to send."""

    def add_part(
        self,
        profile_id: bounds.ProfileId,
        worker: str,
        recording: bounds.RecordingName,
        number: Annotated[int, Field(ge=0, le=profiles.MAX_BYTES // profiles.PART_BYTES)],
        data: bounds.Octets,
    ) -> str:
        """Store a part of a recording. The response is stored, wait (too many are stored), gone or size."""


class LeaseStore(Protocol):
    """Store of leases, as workers use it."""

    @property
    def fleet(self) -> FleetCalls: ...

    @property
    def slots(self) -> SlotCalls: ...

    @property
    def leases(self) -> LeaseCalls: ...

    @property
    def results(self) -> ResultCalls: ...

    @property
    def profiles(self) -> ProfileCalls: ...

    def pulse(self, pulse: Pulse) -> Heard:
        """Extend the worker's leases and its slot, and record its heartbeat."""

    def drop_idle_connections(self) -> None:
        """Close all connections that are not in use."""
