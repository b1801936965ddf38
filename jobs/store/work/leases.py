"""Leases: ranges of a job's units that one lane owns for about a second. See docs/lease-protocol.md."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from jobs.hosts.labels import as_argument
from jobs.store.server.functions import LEASE_TTL_MS, Part
from jobs.store.work.bounds import MAX_REASON, MAX_UNIT_ERROR, Content, JobId, LeaseToken, Marks, Milliseconds

#: Interval in seconds between the heartbeats of a lease.
HEARTBEAT_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Grant:
    """Lease of a range of units. The units from lo to hi-1 belong to the token."""

    token: str
    lo: int
    hi: int
    errors: Annotated[
        int, Field(description="Number of failures of unit lo so far. This is its attempt number errors + 1.")
    ] = 0


@dataclass(frozen=True, kw_only=True)
class Finished:
    """Result of a small job, and the time in milliseconds for computing it."""

    #: Pydantic configuration: a JSON object without additional fields.
    __pydantic_config__ = ConfigDict(extra="forbid")

    job_id: JobId
    token: LeaseToken
    result: Content
    ms: Milliseconds
    #: Facts about ranges of integers that the job proved, in the format of `jobs.marks.serialize_marks`.
    marks: Marks = "[]"
    #: Device time of the job in milliseconds. Jobs that share the device share its time.
    device_ms: Milliseconds = 0


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Result of committing a partial result."""

    merged: Annotated[bool, Field(description="False if the token was stale; the work must be dropped.")]
    finishing: Annotated[
        bool, Field(description="True if the last unit of the job is committed; the worker must derive the result.")
    ] = False
    parts: Annotated[int, Field(description="Number of partials that are not yet merged.")] = 0


class Leases(Part):
    """Acquires, extends and ends leases in Redis."""

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
        labels: Iterable[str] | None = None,
    ) -> Grant | str:
        """Lease a range of a job's units. Return the range, or `wait`, `yield`, `finishing` or `gone`.

        `want` and `least` are in units, `rate` is in units/s. `labels` are the labels of the worker's host; None means
        the labels in the worker's record.
        """
        reply = self._functions.run_texts(
            "lease",
            job,
            token,
            want,
            least,
            LEASE_TTL_MS,
            worker,
            lane,
            f"{rate:.6g}",
            json.dumps(list(higher)),
            as_argument(labels),
        )
        if reply[0] == "ok":
            return Grant(token=token, lo=int(reply[1]), hi=int(reply[2]), errors=int(reply[3]))
        return reply[0]

    def heartbeat(self, job: str, token: str, upto: int) -> int:
        """Extend a lease. Return 1 to continue, 2 to commit after the current chunk and stop, or 0 to drop the work."""
        return int(self._functions.run("heartbeat", job, token, upto, LEASE_TTL_MS))

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
    ) -> Merge:
        """Store the partial result of the units below `upto`, and end the lease.

        `ms` is lane time; `device_ms` and `joules` are the lease's share of a device that several lanes use. `keep`
        continues the lease with the units from `upto` on, under the same token. A continued lease needs `lo`, the first
        unit of the partial: if the lease starts at another unit because Redis lost a commit, the call is stale.
        """
        energy = "" if joules is None else str(round(joules * 1000))
        more = (f"{pace:.6g}", device_ms, energy, int(keep), "" if lo is None else lo)
        code, parts = self._functions.run("commit", job, token, upto, partial, ms, worker, device, *more)
        return Merge(merged=code > 0, finishing=code == 2, parts=parts)

    def done1_all(self, finished: Sequence[Finished], *, worker: str, device: str) -> list[bool]:
        """Commit and finish many small jobs in one round trip to Redis."""
        calls = [
            (one.job_id, one.token, one.result, one.ms, worker, device, one.marks, one.device_ms) for one in finished
        ]
        replies = self._functions.many("done1", calls)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return [bool(reply) for reply in replies]

    def release(self, job: str, token: str) -> bool:
        """End a lease whose units were not computed, and release its units. Return False if the lease had already
        ended.
        """
        return bool(self._functions.run("release", job, token))

    def crash(self, job: str, token: str) -> bool:
        """End a lease whose lane died, and release its units."""
        return bool(self._functions.run("crash", job, token))

    def fail(self, job: str, token: str, error: str) -> bool:
        """End a lease whose kernel raised an exception. Its units are retried later."""
        jitter = secrets.randbelow(1000) / 1000
        return bool(self._functions.run("fail", job, token, error[:MAX_REASON], jitter))

    def fail_unit(
        self, job: str, token: str, error: str, *, most: int, wait_ms: int, row: str = "", unit: int | None = None
    ) -> bool:
        """End a program's lease whose first unit failed. The unit is retried later, or fails permanently after `most`
        errors.

        The retry is due after `wait_ms`. The other units are leased next. `row`, JSON of at most MAX_UNIT_ROW bytes, is
        stored as the unit's last failure. If `unit` is set and is not the first unit of the lease, the call is stale.
        """
        which = "" if unit is None else unit
        return bool(self._functions.run("fail_unit", job, token, which, error[:MAX_UNIT_ERROR], most, wait_ms, row))

    def split(self, job: str, token: str, at: int) -> bool:
        """Shorten a lease so that it ends before unit `at`. Other lanes can lease the units from `at` on."""
        return bool(self._functions.run("split", job, token, at))
