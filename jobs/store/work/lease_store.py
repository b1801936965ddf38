"""The store of leases as a worker asks it, however it reaches it: `Store` over Redis, or the coordinator's API.

Methods with a docstring are calls of that API as they stand here: `jobs.worker.api.calls` derives route and request.
`docs/lease-protocol.md` says what each call does; the methods of the parts of `Store` have the same names. Every call
may be repeated after a lost answer. Errors of a call are those of `jobs.store.server.connection`.
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

#: Jobs that a worker finishes at once.
MAX_FINISHED = TAKE * 1024

#: What a worker says of itself: values of a flat hash.
Row = dict[str, str | int | float]


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """A worker says, each second, that it lives, and which leases and slot it keeps."""

    worker: str
    born: str
    #: Gives what the worker says of itself; asked once the leases are kept, where it may take a while.
    row: Callable[[], Row]
    #: Job, token and how far the lane is, of each lease.
    leases: tuple[tuple[str, str, int], ...] = ()
    #: It has a slot to keep.
    slot: bool = False


@dataclass(frozen=True, kw_only=True)
class Heard:
    """The answer to a pulse."""

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
    """The answer to a claim of GPUs."""

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
        """Take GPUs by their UUIDs, all or none, or renew that: for five seconds, a runner for 650.

        A GPU worker hears for which priority programs wait for its GPU.
        """

    def give_up(self, gpus: bounds.GpuNames, worker: str, priority: bounds.ClaimPriority = "") -> None:
        """Give GPUs back."""


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
        """End the worker's slot: its job goes to others."""

    def facts(self, jobs: Sequence[str], device: str) -> list[Facts | None]: ...

    def waiting(self, listened: bounds.QueueNames) -> list[int]:
        """How many jobs wait in each of these queues."""


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
        """A range of the job that the worker holds, for a lane; gone for any other job. The same token gets it again.

        Else a word: wait, yield, finishing or gone.
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
        """Store the partial of the units below `upto`, once, and end the lease, or keep what is left of it."""

    def done1_all(
        self,
        finished: Annotated[Sequence[Finished], Field(min_length=1, max_length=MAX_FINISHED)],
        *,
        worker: str,
        device: bounds.WorkDevice,
    ) -> list[bool]:
        """Commit and finish small jobs, each of which one lease covers. False: it had ended before."""

    def release(self, job: bounds.JobId, token: bounds.LeaseToken) -> bool:
        """End a lease untouched: its range goes to others. False: it had ended before, as below."""

    def crash(self, job: bounds.JobId, token: bounds.LeaseToken) -> bool:
        """End a lease on which a lane died."""

    def fail(self, job: bounds.JobId, token: bounds.LeaseToken, error: bounds.Reason) -> bool:
        """End a lease on which the kernel raised."""

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
        """End a lease whose first unit failed: it waits or is given up, and the units after it are leased next."""

    def split(self, job: bounds.JobId, token: bounds.LeaseToken, at: bounds.Units) -> bool:
        """End a lease at a unit within it; the units from there on go to others."""


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
        """Claim devices to sample for a profile, say what was recorded, and hear which of it is wanted."""

    def add_part(
        self,
        profile_id: bounds.ProfileId,
        worker: str,
        recording: bounds.RecordingName,
        number: Annotated[int, Field(ge=0, le=profiles.MAX_BYTES // profiles.PART_BYTES)],
        data: bounds.Octets,
    ) -> str:
        """Bring a part of a recording that is wanted: stored; wait: others are on their way; gone; size."""


class LeaseStore(Protocol):
    """The store of leases as a worker knows it."""

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
        """Keep leases, slot and the worker alive."""

    def drop_idle_connections(self) -> None:
        """Close the connections that no call uses now: the next calls connect anew."""
