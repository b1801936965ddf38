"""Reads of jobs for users: fields, states, queue positions and results. Most reads take one round trip.

A key of the wrong type counts as missing and is recorded in `unreadable_entries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeAlias, cast

from jobs import errors
from jobs.models import DeadRange, QueuePosition, ReachedCap
from jobs.store import keys, unreadable_entries
from jobs.store.server.connection import ResponseError, wrong_type
from jobs.store.server.functions import Part
from jobs.store.server.wire import NoReply, Wire
from jobs.store.tenancy import caps
from jobs.store.tenancy.caps import Cap
from threads_protocol.states import JobState

#: Redis hash of a job.
Fields: TypeAlias = Mapping[bytes, bytes]
#: State, kind and error of a job. Missing values are None.
Head: TypeAlias = Sequence[bytes | None]

#: Maximum submission number of a job.
_LAST = str(2**53)
#: Maximum number of bytes of a job's result that one call reads.
PIECE_BYTES = 1 << 20


class JobReads(Part):
    """Reads jobs from Redis."""

    def hashes(self, ids: Sequence[str]) -> list[tuple[str, Fields]]:
        """Return the ID and all fields of each job that exists, in order."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hgetall(keys.job(job_id))
        return [
            (job_id, fields) for job_id, fields in zip(ids, unreadable_entries.replies(pipe), strict=True) if fields
        ]

    def fields(self, ids: Sequence[str], names: Sequence[str]) -> list[tuple[str, dict[str, bytes | None]]]:
        """Return the ID and the named fields of each job that exists. The value of a missing field is None."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hmget(keys.job(job_id), names)
        rows = zip(ids, unreadable_entries.replies(pipe) if ids else (), strict=True)
        return [(job_id, dict(zip(names, row, strict=True))) for job_id, row in rows if row and any(row)]

    def exists(self, job_id: str) -> bool:
        """Return True if Redis has a job with this ID."""
        return bool(self._client.exists(keys.job(job_id)))

    def tenants(self, ids: Sequence[str]) -> list[str | None]:
        """Return the tenant of each job. The entry of a missing or unreadable job is None."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hmget(keys.job(job_id), "state", "tenant")
        return [
            row[1].decode(errors="replace") if row and row[0] and row[1] else None
            for row in unreadable_entries.replies(pipe)
        ]

    def places(self, waiting: Sequence[tuple[str, str, str, str]]) -> list[QueuePosition]:
        """Return the queue position of each waiting job. The arguments are tuples of queue, tenant, kind and job ID."""
        if not waiting:
            return []
        pipe = self._pipe().hgetall(keys.SHARES).smembers(keys.CAPPED).hgetall(keys.RESERVED)
        for queue, _, _, job_id in waiting:
            pipe.zrank(keys.pending(queue), job_id).zcard(keys.job_leases(job_id))
        shares, capped, reserved, *replies = unreadable_entries.replies(pipe)
        pairs = list(zip(replies[::2], replies[1::2], strict=True))
        kept = [_parse_reservation((reserved or {}).get(job_id.encode(), b"")) for *_, job_id in waiting]
        if not shares:
            return [
                QueuePosition(before=before, leases=leases or 0, kept=runner, kept_leases=ending)
                for (before, leases), (runner, ending) in zip(pairs, kept, strict=True)
            ]
        for queue, tenant, _, job_id in waiting:
            pipe.zrank(keys.tenant_pending(queue, tenant), job_id).zrank(keys.order(queue), tenant)
            pipe.zrank(keys.backlog(tenant), job_id)
        parts = iter(unreadable_entries.replies(pipe))
        spent = self._spent({(tenant, kind) for _, tenant, kind, _ in waiting if keys.caps(tenant).encode() in shares})
        return [
            QueuePosition(
                before=next(parts),
                leases=leases or 0,
                tenant=tenant,
                tenants_before=next(parts) or 0,
                in_backlog=next(parts),
                max_jobs=_cap(shares, tenant, 2),
                max_lanes=_cap(shares, tenant, 1) if tenant.encode() in (capped or ()) else 0,
                kept=runner,
                kept_leases=ending,
                **spent.get((tenant, kind), {}),
            )
            for (_, tenant, kind, _), (_, leases), (runner, ending) in zip(waiting, pairs, kept, strict=True)
        ]

    def _spent(self, asked: Set[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the daily limits that were reached, for each tenant and kind."""
        if not asked:
            return {}
        tenants = sorted({tenant for tenant, _ in asked})
        left_ms, further = caps.read(self._functions, tenants)
        by_tenant = dict(zip(tenants, further, strict=True))
        return {(tenant, kind): _reached_caps(by_tenant[tenant], kind, left_ms / 1000) for tenant, kind in asked}

    def newest(self, state: str | None, before: int | None, most: int) -> list[tuple[bytes, int]]:
        """Return up to `most` jobs, newest first, as (ID, submission number). `before` is the end of the
        previous page.
        """
        index = keys.in_state(state) if state else keys.JOBS
        top = _LAST if before is None else f"({before}"
        pipe = self._pipe().zrevrangebyscore(index, top, 0, start=0, num=most, withscores=True)
        [page] = unreadable_entries.replies(pipe)
        return [(job_id, int(number)) for job_id, number in page or ()]

    def added_since(self, number: int) -> tuple[list[tuple[str, int]], str | None, int]:
        """Return the jobs after a submission number, oldest first, as (ID, number), the newest job, and their count."""
        pipe = self._pipe().zrangebyscore(keys.JOBS, f"({number}", _LAST, withscores=True)
        added, newest, count = unreadable_entries.replies(pipe.zrevrange(keys.JOBS, 0, 0).zcard(keys.JOBS))
        return _decode_numbered(added), newest[0].decode(errors="replace") if newest else None, count or 0

    def all_ids(self) -> list[str]:
        """Return the IDs of all stored jobs, oldest first."""
        [stored] = unreadable_entries.replies(self._pipe().zrange(keys.JOBS, 0, -1))
        return [job_id.decode(errors="replace") for job_id in stored or ()]

    def numbers(self, ids: Sequence[str]) -> list[tuple[str, int]]:
        """Return the ID and the submission number of each job that exists. An invalid number becomes 0."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.zscore(keys.JOBS, job_id)
        stored = zip(ids, unreadable_entries.replies(pipe) if ids else (), strict=True)
        found = [(job_id, number) for job_id, number in stored if number is not None]
        return [(job_id, int(number) if 0 < number <= int(_LAST) else 0) for job_id, number in found]

    def in_states(self, states: Iterable[str]) -> dict[str, set[str]]:
        """Return the IDs of all jobs in each of these states, as they were at one moment."""
        names = list(states)
        commands = [("ZRANGE", keys.in_state(state), "0", "-1") for state in names]
        replies = unreadable_entries.replies_at_once(self._functions, *commands) if names else []
        return {
            state: {job_id.decode(errors="replace") for job_id in ids or ()}
            for state, ids in zip(names, replies, strict=True)
        }

    def states(self, ids: Sequence[str]) -> list[str | None]:
        """Return the state of each job. The entry of a job that does not exist is None."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hget(keys.job(job_id), "state")
        return [state.decode(errors="replace") if state else None for state in unreadable_entries.replies(pipe)]

    def counts(self) -> dict[str, int]:
        """Return the number of stored jobs in each state."""
        pipe = self._pipe()
        for state in JobState:
            pipe.zcard(keys.in_state(state))
        return {
            state.value: count or 0 for state, count in zip(JobState, unreadable_entries.replies(pipe), strict=True)
        }

    def submission_times(self, ids: Sequence[str]) -> dict[str, float]:
        """Return the submission time of each job in seconds since 1970. Unreadable jobs are omitted."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hget(keys.job(job_id), "created")
        stored = zip(ids, unreadable_entries.replies(pipe), strict=True)
        return dict(unreadable_entries.readable("job", stored, lambda job_id, ms: (job_id, int(ms or 0) / 1000)))

    def dead_counts(self, ids: Sequence[str]) -> list[int]:
        """Return the number of permanently failed unit ranges of each job."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.llen(keys.job_dead(job_id))
        return [count or 0 for count in unreadable_entries.replies(pipe)] if ids else []

    def dead_ranges(self, ids: Sequence[str], most: int) -> list[list[DeadRange]]:
        """Return up to `most` permanently failed unit ranges of each job, with their errors."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.lrange(keys.job_dead(job_id), 0, most - 1)
        ranges = [
            [text.decode().split(":") for text in pieces or ()] for pieces in unreadable_entries.replies(pipe) if ids
        ]
        asked = [(job_id, pieces) for job_id, pieces in zip(ids, ranges, strict=True) if pieces]
        for job_id, pieces in asked:
            pipe.hmget(keys.job(job_id), [f"dead|{lo}" for lo, *_ in pieces])
        texts = dict(
            zip((job_id for job_id, _ in asked), unreadable_entries.replies(pipe) if asked else (), strict=True)
        )
        return [_parse_dead_ranges(pieces, texts.get(job_id) or ()) for job_id, pieces in zip(ids, ranges, strict=True)]

    # -- results ----------------------------------------------------------------------------------------------------

    def stored_result(self, job_id: str) -> tuple[list[bytes | None], ResultText | None] | None:
        """Return kind, total, done and state of a job together with its result. Return None if a key has the wrong
        type.
        """
        head, key = ("HMGET", keys.job(job_id), "kind", "total", "done", "state"), keys.job_result(job_id)
        try:
            row, first, length = self._functions.read(
                head, ("GETRANGE", key, "0", str(PIECE_BYTES - 1)), ("STRLEN", key)
            )
        except ResponseError as error:
            if wrong_type(error):
                return None
            raise
        return row, ResultText(self, job_id, first, length) if length else None

    def result_piece(self, job_id: str, start: int) -> bytes:
        """Return up to PIECE_BYTES bytes of a result from an offset on. Return b"" if the job does not exist."""
        piece: bytes = self._client.getrange(keys.job_result(job_id), start, start + PIECE_BYTES - 1)
        return piece

    async def short_result(self, wire: Wire, job_id: str, most: int) -> tuple[str, bytes] | None:
        """Return a job's state and its result without blocking the event loop. The result is empty if there is none.

        Return None if the result is over `most` bytes, if the job is just finishing, or if the call failed.
        """
        try:
            result, row = await wire.call(
                ("GETRANGE", keys.job_result(job_id), 0, most), ("HMGET", keys.job(job_id), "state")
            )
        except NoReply:
            return None
        if isinstance(result, Exception) or isinstance(row, Exception) or row[0] is None or len(result) > most:
            return None
        state = row[0].decode(errors="replace")
        return None if state == JobState.DONE and not result else (state, result)

    def result_beginnings(self, ids: Sequence[str], most: int) -> tuple[list[Head], list[bytes]]:
        """Return the state, kind, error and result of each job. A result over `most` bytes is cut to `most` + 1
        bytes.
        """
        pipe = self._pipe()
        for job_id in ids:
            pipe.hmget(keys.job(job_id), "state", "kind", "error").getrange(keys.job_result(job_id), 0, most)
        replies = unreadable_entries.replies(pipe)
        return [head or (None, None, None) for head in replies[::2]], [text or b"" for text in replies[1::2]]

    def result_lengths(self, ids: Sequence[str]) -> list[int]:
        """Return the size in bytes of each job's result, or 0 for a job without a result."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.strlen(keys.job_result(job_id))
        return cast(list[int], pipe.execute())

    def result_texts(self, ids: Sequence[str]) -> list[bytes]:
        """Return the result of each job as stored, or an empty text for a job without a result."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.get(keys.job_result(job_id))
        return [text or b"" for text in pipe.execute()]


class ResultText:
    """Stored result of a job. Only the start of a long result is in memory, and the rest is read when needed."""

    def __init__(self, reads: JobReads, job_id: str, first: bytes, length: int) -> None:
        self._reads = reads
        self._job_id = job_id
        self._first = first
        #: Size of the complete result in bytes.
        self.length = length

    @property
    def is_long(self) -> bool:
        return self.length > len(self._first)

    def pieces(self) -> Iterator[bytes]:
        """Yield the result in pieces. Raises NotFound if the job is deleted meanwhile."""
        piece, at = self._first, 0
        while True:
            yield piece
            at += len(piece)
            if at >= self.length:
                return
            if not (piece := self._reads.result_piece(self._job_id, at)):
                detail = f"job {self._job_id} was deleted while its result was being read"
                raise errors.NotFound(detail, field="job_id")

    def whole(self) -> bytes:
        """Return the complete result of the job."""
        return b"".join(self.pieces())


def _decode_numbered(stored: Sequence[tuple[bytes, float]] | None) -> list[tuple[str, int]]:
    return [(job_id.decode(errors="replace"), int(number)) for job_id, number in stored or ()]


def _parse_dead_ranges(pieces: Sequence[Sequence[str]], errors: Sequence[bytes | None]) -> list[DeadRange]:
    return [
        DeadRange(
            lo=int(lo),
            hi=int(hi),
            deaths=int(deaths),
            errors=int(raised),
            error=(error or b"").decode(errors="replace"),
        )
        for (lo, hi, deaths, raised), error in zip(pieces, errors, strict=True)
    ]


def _parse_reservation(reserved: bytes) -> tuple[str, int]:
    """Return the runner that is reserved for a job, and the number of leases that must end there first.

    For an unreadable reservation, return ("", 0).
    """
    runner, *words = reserved.decode(errors="replace").rsplit("|", 4)
    return (runner, int(words[1])) if len(words) == 4 and words[1].isdecimal() else ("", 0)


def _cap(shares: Mapping[bytes, bytes], tenant: str, place: int) -> int:
    """Return a tenant's weight, max_lanes or max_jobs by its position. Return 0 if the tenant is not registered."""
    return int(shares.get(tenant.encode(), b"1|0|0").split(b"|")[place])


def _reached_caps(own: Mapping[str, Cap], kind: str, seconds: float) -> dict[str, ReachedCap]:
    """Return the limits that a tenant has reached today, on a kind's units and on GPU seconds."""
    units, gpu = own.get(f"{caps.UNITS}{kind}"), own.get(caps.GPU_MS)
    reached = {}
    if units and units.reached:
        reached["units"] = ReachedCap(cap="max_units", used=units.used, most=units.most, seconds=seconds)
    if gpu and gpu.reached:
        reached["gpu"] = ReachedCap(cap="max_gpu_seconds", used=gpu.used / 1000, most=gpu.most / 1000, seconds=seconds)
    return reached
