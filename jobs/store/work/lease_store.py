"""The lease store as workers use it, either `Store` on Redis or the coordinator's API.

Methods with a docstring are calls of that API: `jobs.worker.api.calls` derives route and request from them.
`docs/lease-protocol.md` specifies each call; the methods of the parts of `Store` have the same names. Every call may be
repeated after a lost answer. Errors are those of `jobs.store.server.connection`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field

from jobs.gathered import Gathered
from jobs.hosts.requirements import Offer
from jobs.store import profiles
from jobs.store.profiles import Order, Recording, Reported
from jobs.store.work import bounds
from jobs.store.work.leases import Finished, Grant, Merge
from jobs.store.work.slots import TAKE, Facts, Held, Taken

#: Maximum number of small jobs that a worker finishes in one call.
MAX_FINISHED = TAKE * 1024

#: A worker's record: the values of a flat hash.
Row = dict[str, str | int | float]


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """A worker's heartbeat, sent every second, with the leases and the slot that it keeps."""

    worker: str
    born: str
    #: Returns the worker's record. It is called after the leases were extended, since it may take a while.
    row: Callable[[], Row]
    #: Job, token and progress of each lease.
    leases: tuple[tuple[str, str, int], ...] = ()
    #: Whether the worker has a slot.
    slot: bool = False


@dataclass(frozen=True, kw_only=True)
class Heard:
    """Answer to a pulse."""

    leases: Annotated[tuple[int, ...], Field(description="The answer of BEAT for each lease, in order.")]
    word: Annotated[str, Field(description="The answer of HEARTBEAT.")]
    follow: Annotated[
        tuple[str, ...],
        Field(description="Jobs of these leases whose output is followed; for runners."),
    ] = ()
    attach: Annotated[
        tuple[tuple[str, int, str], ...],
        Field(description="Job, unit and ID of each shell that is requested in a unit of these leases; for runners."),
    ] = ()
    profiles: Annotated[
        tuple[Order, ...] | None,
        Field(description="Profiles in progress; null: unknown."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """Answer to a claim of GPUs."""

    held: Annotated[bool, Field(description="All of them are this worker's; else none was taken.")]
    wanted: Annotated[
        str,
        Field(description="For GPU workers: highest priority of programs that wait for one of them."),
    ] = ""
    by: Annotated[
        str,
        Field(description="Why not: worker or program has one of them; wanted: programs go first."),
    ] = ""


class FleetCalls(Protocol):
    def birth(self) -> str: ...

    def heartbeat(
        self, worker: str, born: str, facts: Mapping[str, str | int | float], *, leaving: bool = False
    ) -> str: ...

    def claim(self, gpus: bounds.GpuNames, worker: str, priority: bounds.ClaimPriority = "") -> Claimed:
        """Claim or renew GPUs by UUID, all or none. Claims last five seconds, those of runners 650 s.

        The answer tells a GPU worker for which priority programs wait for its GPU.
        """

    def give_up(self, gpus: bounds.GpuNames, worker: str, priority: bounds.ClaimPriority = "") -> None:
        """Release claims on GPUs."""


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
        """End the worker's slot and release its job to other workers."""

    def facts(self, jobs: Sequence[str], device: str) -> list[Facts | None]: ...

    def waiting(self, listened: bounds.QueueNames) -> list[int]:
        """Return the number of pending jobs in each of these queues."""


class LeaseCalls(Protocol):
    def lease(
        self,
        job: bounds.JobId,
        token: bounds.LeaseToken,
        *,
        want: Annotated[bounds.SomeUnits, Field(description="Units of the usual lease of this lane.")],
        least: Annotated[bounds.SomeUnits, Field(description="Units of the smallest one worth its overhead.")] = 1,
        worker: str,
        lane: bounds.Lane = "0",
        rate: bounds.Rate = 0.0,
        higher: Annotated[bounds.QueueNames, Field(description="Queues whose work ends the worker's turn.")] = (),
    ) -> Grant | str:
        """Lease a range of the job of the worker's slot for a lane. The same token gets the same range again.

        Otherwise the answer is wait, yield, finishing or gone; gone also for any other job.
        """

    def commit(
        self,
        job: bounds.JobId,
        token: bounds.LeaseToken,
        upto: bounds.SomeUnits,
        partial: bounds.Content,
        *,
        ms: Annotated[bounds.Milliseconds, Field(description="Of the lane.")],
        worker: str,
        device: bounds.WorkDevice,
        pace: bounds.Pace = 0.0,
        device_ms: Annotated[bounds.Milliseconds, Field(description="Its share of a device that lanes share.")] = 0,
        joules: Annotated[bounds.Joules | None, Field(description="Its share of the device's energy.")] = None,
        keep: Annotated[bool, Field(description="The lease goes on with the units from `upto`.")] = False,
        lo: Annotated[bounds.Units | None, Field(description="The partial's first; of a lease that is kept.")] = None,
    ) -> Merge:
        """Store the partial of the units below `upto` once, and end the lease or keep the rest of it."""

    def done1_all(
        self,
        finished: Annotated[Sequence[Finished], Field(min_length=1, max_length=MAX_FINISHED)],
        *,
        worker: str,
        device: bounds.WorkDevice,
    ) -> list[bool]:
        """Commit and finish small jobs, each covered by one lease. False: the lease had ended before."""

    def release(self, job: bounds.JobId, token: bounds.LeaseToken) -> bool:
        """End a lease uncomputed and release its range. False: it had ended before. The calls below answer the same."""

    def crash(self, job: bounds.JobId, token: bounds.LeaseToken) -> bool:
        """End a lease on which a lane died."""

    def fail(self, job: bounds.JobId, token: bounds.LeaseToken, error: bounds.Reason) -> bool:
        """End a lease on which the kernel raised an error."""

    def fail_unit(
        self,
        job: bounds.JobId,
        token: bounds.LeaseToken,
        error: bounds.Reason,
        *,
        most: Annotated[int, Field(ge=0, le=1000, description="Errors of the unit beyond which it is given up.")],
        wait_ms: Annotated[int, Field(ge=0, le=bounds.MAX_WAIT_MS, description="It is not leased otherwise.")],
        row: bounds.FailureRow = "",
        unit: Annotated[bounds.Units | None, Field(description="The first of the lease, else it is stale.")] = None,
    ) -> bool:
        """End a lease whose first unit failed: retry that later, or give it up. The units after it are leased next."""

    def split(self, job: bounds.JobId, token: bounds.LeaseToken, at: bounds.Units) -> bool:
        """End a lease before a unit within it. Others may lease the units from there on."""


class ResultCalls(Protocol):
    def gather(self, job: str, limit: int = ...) -> Gathered: ...

    def fold(self, job: str, gathered: Gathered, accumulator: bytes) -> bool: ...

    def finish(self, job: str, gathered: Gathered, result: bytes, marks: str = ...) -> bool: ...

    def abort(self, job: str, error: str) -> bool: ...

    def stumble(self, job: str, token: str, error: str) -> bool: ...


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
        """Store a part of a recording. The answer is stored, wait (too many are stored), gone or size."""


class LeaseStore(Protocol):
    """The lease store as workers use it."""

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
        """Extend leases and slot, and record the worker's heartbeat."""

    def drop_idle_connections(self) -> None:
        """Close connections that no call is using."""
