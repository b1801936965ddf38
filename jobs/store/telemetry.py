"""Reads and writes of telemetry in Redis: spans, history, alerts and counters. Callers decode the stored records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.store import keys, unreadable_entries
from jobs.store.server.connection import RedisError, Unreachable
from jobs.store.server.functions import SPANS_KEPT, Part
from threads_protocol.states import ACTIVE, JobState


class Memory(NamedTuple):
    """Memory in bytes that Redis uses, and the limit. The values are None if they are unknown."""

    used: int
    limit: int | None


@dataclass(frozen=True, kw_only=True)
class StoredSpans:
    """Stored spans at the time `now` (milliseconds of Redis time). A span is the time of work on one lease.

    `oldest` is the end of the oldest stored span. `full` is True if older spans were dropped.
    """

    now: int
    #: Fields of the spans that have ended.
    past: Sequence[tuple[bytes, Mapping[bytes, bytes]]]
    #: Name of each lane, and its latest span.
    latest: Sequence[tuple[bytes, bytes]]
    running: Sequence[str]
    full: bool
    oldest: int


class Telemetry(Part):
    """Reads and writes spans, history, alerts and counters in Redis. No job depends on them."""

    # -- counters ---------------------------------------------------------------------------------------------------

    def figures(self, key: str) -> dict[str, float]:
        """Return the numeric fields of a Redis hash. Unreadable fields are skipped."""
        [stored] = unreadable_entries.replies(self._pipe().hgetall(key))
        return dict(
            unreadable_entries.readable(
                "figure", (stored or {}).items(), lambda name, text: (name.decode(), float(text))
            )
        )

    def units(self) -> tuple[float, dict[str, int]]:
        """Return Redis time in seconds, and the exact number of committed units, keyed by kind|device."""
        (seconds, micros), stored = unreadable_entries.replies(self._pipe().time().hgetall(keys.UNITS))
        counts = unreadable_entries.readable(
            "figure", (stored or {}).items(), lambda name, text: (name.decode(), int(text))
        )
        return seconds + micros / 1e6, dict(counts)

    def broken(self) -> int:
        """Return the number of jobs and keys with unreadable data."""
        [count] = unreadable_entries.replies(self._pipe().scard(keys.BROKEN))
        return count or 0

    def memory(self) -> Memory:
        """Return how much memory Redis uses."""
        memory = self._client.info("memory")
        return Memory(memory["used_memory"], memory.get("maxmemory") or memory.get("total_system_memory") or None)

    def failed(self, most: int) -> list[tuple[bytes, Sequence[Any]]]:
        """Return up to `most` failed jobs, newest first, as (ID, (end in milliseconds, kind))."""
        pipe = self._pipe()
        [ids] = unreadable_entries.replies(pipe.zrevrange(keys.in_state(JobState.FAILED), 0, most - 1))
        pipe = self._pipe()
        for job_id in ids or ():
            pipe.hmget(keys.job("").encode() + job_id, "ended", "kind")
        return list(zip(ids, unreadable_entries.replies(pipe), strict=True)) if ids else []

    # -- history ----------------------------------------------------------------------------------------------------

    def append_sample(self, row: str) -> int:
        """Add a sample to the current minute of the history. Return the minute's number of samples."""
        return int(self._client.rpush(keys.HISTORY_NOW, row))

    def fold_samples(self, count: int, most: int, pack: Callable[[Sequence[bytes]], bytes]) -> bool:
        """Replace the oldest `count` samples with one block, and keep the last `most` blocks. Return False if this
        failed.

        `pack` creates the block. The method fails if there are fewer samples or another process has replaced them.
        """
        pipe = self._client.pipeline(transaction=True)
        try:
            pipe.watch(keys.HISTORY_NOW)
            rows = pipe.lrange(keys.HISTORY_NOW, 0, count - 1)
            if len(rows) < count:
                return False
            pipe.multi()
            pipe.rpush(keys.HISTORY, pack(rows))
            pipe.ltrim(keys.HISTORY, -most, -1)
            pipe.ltrim(keys.HISTORY_NOW, count, -1)
            pipe.execute()
        except RedisError as error:
            if isinstance(error, Unreachable):
                raise
            return False  # Another leader has changed the list
        finally:
            pipe.reset()
        return True

    def history(self, blocks: int) -> tuple[int, list[bytes], list[bytes]]:
        """Return Redis time in seconds, the last `blocks` blocks of the history, and the samples after them."""
        (now, _), samples, stored = unreadable_entries.replies_at_once(
            self._functions,
            ("TIME",),
            ("LRANGE", keys.HISTORY_NOW, "0", "-1"),
            ("LRANGE", keys.HISTORY, str(-blocks), "-1"),
        )
        return int(now), list(stored or ()), list(samples or ())

    # -- alerts -----------------------------------------------------------------------------------------------------

    def alerts(self) -> list[tuple[bytes, bytes]]:
        """Return the ID of each alert, and the alert as JSON."""
        [stored] = unreadable_entries.replies(self._pipe().hgetall(keys.ALERTS))
        return list((stored or {}).items())

    def write_alerts(self, changed: Mapping[str, str], gone: Iterable[str]) -> None:
        """Write alerts as JSON, keyed by alert ID. Delete the alerts in `gone`."""
        if changed:
            self._client.hset(keys.ALERTS, mapping=dict(changed))
        if names := list(gone):
            self._client.hdel(keys.ALERTS, *names)

    # -- spans ------------------------------------------------------------------------------------------------------

    def put_spans_away(self) -> int:
        """Move ended spans from the lanes' records to the stream of spans, and return their number.

        Only the leader calls this method.
        """
        return int(self._functions.run("spans"))

    def spans(self, seconds: int) -> StoredSpans:
        """Return the spans that ended within the last `seconds`, and the latest span of each lane."""
        pipe = self._pipe()  # A full Redis rejects MULTI
        pipe.time().hgetall(keys.SPAN).xlen(keys.SPANS).xrange(keys.SPANS, count=1)
        for state in ACTIVE:
            pipe.zrange(keys.in_state(state), 0, -1)
        (whole, micros), latest, kept, first, *running = unreadable_entries.replies(pipe)
        now = whole * 1000 + micros // 1000
        return StoredSpans(
            now=now,
            past=self._client.xrange(keys.SPANS, str(now - seconds * 1000), "+") if first else [],
            latest=list((latest or {}).items()),
            running=[job.decode(errors="replace") for jobs in running for job in jobs or ()],
            full=bool(first) and kept >= SPANS_KEPT,
            oldest=int(first[0][0].partition(b"-")[0]) if first else now,
        )

    def held(self, jobs: Sequence[str]) -> list[tuple[str, tuple[Sequence[bytes | None], Sequence[bytes]]]]:
        """Return the kind, size class, queue and leases of each job."""
        pipe = self._pipe()
        for job in jobs:
            pipe.hmget(keys.job(job), "kind", "small", "queue").hvals(keys.job_lease(job))
        replies = unreadable_entries.replies(pipe) if jobs else []
        return list(zip(jobs, zip(replies[::2], replies[1::2], strict=True), strict=True))
