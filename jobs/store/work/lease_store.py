"""The store of leases as a worker asks it, however it reaches it: `Store` over Redis, or the coordinator's API.

`docs/lease-protocol.md` says what each call does; the methods of the parts of `Store` have the same names. Every call
may be repeated after a lost answer. Errors of a call are those of `jobs.store.server.connection`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs.gathered import Gathered
from jobs.hosts.requirements import Offer
from jobs.store.profiles import Order, Recording, Reported
from jobs.store.work.leases import Committed, Finished, Grant
from jobs.store.work.slots import Facts, Held, Taken

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

    #: What `LeaseCalls.beat` answers for each lease, in order.
    leases: tuple[int, ...]
    #: What `FleetCalls.heartbeat` answers.
    word: str
    #: Jobs of these leases of which somebody follows a unit; said to runners alone.
    follow: tuple[str, ...] = ()
    #: Job, unit and id of each shell that somebody wants beside a unit of these leases; said to runners alone.
    attach: tuple[tuple[str, int, str], ...] = ()
    #: Profiles that live; None: what answers knows of none, or cannot tell.
    profiles: tuple[Order, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """The answer to a claim of GPUs."""

    #: All of them are this worker's; else none was taken.
    held: bool
    #: To a GPU worker: the highest priority of programs that wait for one of them; empty for none.
    wanted: str = ""
    #: Why not: worker or program has one of them; wanted: programs wait for one, and go first.
    by: str = ""


class FleetCalls(Protocol):
    def birth(self) -> str: ...

    def heartbeat(
        self, worker: str, born: str, facts: Mapping[str, str | int | float], *, leaving: bool = False
    ) -> str: ...

    def claim(self, gpus: Sequence[str], worker: str, priority: str = "") -> Claimed: ...

    def give_up(self, gpus: Sequence[str], worker: str, priority: str = "") -> None: ...


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

    def leave(self, worker: str) -> None: ...

    def facts(self, jobs: Sequence[str], device: str) -> list[Facts | None]: ...

    def waiting(self, listened: Iterable[str]) -> list[int]: ...


class LeaseCalls(Protocol):
    def lease(
        self,
        job: str,
        token: str,
        *,
        want: int,
        least: int = 1,
        worker: str,
        lane: str = "0",
        rate: float = 0.0,
        higher: Iterable[str] = (),
    ) -> Grant | str: ...

    def commit(
        self,
        job: str,
        token: str,
        upto: int,
        partial: bytes,
        *,
        ms: int,
        worker: str,
        device: str,
        pace: float = 0.0,
        device_ms: int = 0,
        joules: float | None = None,
        keep: bool = False,
        lo: int | None = None,
    ) -> Committed: ...

    def done1_all(self, finished: Sequence[Finished], *, worker: str, device: str) -> list[bool]: ...

    def release(self, job: str, token: str) -> bool: ...

    def crash(self, job: str, token: str) -> bool: ...

    def fail(self, job: str, token: str, error: str) -> bool: ...

    def fail_unit(
        self, job: str, token: str, error: str, *, most: int, wait_ms: int, row: str = "", unit: int | None = None
    ) -> bool: ...

    def split(self, job: str, token: str, at: int) -> bool: ...


class ResultCalls(Protocol):
    def gather(self, job: str, limit: int = ...) -> Gathered: ...

    def fold(self, job: str, gathered: Gathered, accumulator: bytes) -> bool: ...

    def finish(self, job: str, gathered: Gathered, result: bytes, marks: str = ...) -> bool: ...

    def abort(self, job: str, error: str) -> bool: ...

    def stumble(self, job: str, token: str, error: str) -> bool: ...


class ProfileCalls(Protocol):
    def report(
        self, profile_id: str, worker: str, devices: Sequence[str], recordings: Sequence[Recording]
    ) -> Reported: ...

    def add_part(self, profile_id: str, worker: str, recording: str, number: int, data: bytes) -> str: ...


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
