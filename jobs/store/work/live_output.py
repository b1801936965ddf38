"""Live output of programs that users follow. Redis keeps it for a minute in streams of limited size.

Lines that are not read in time remain available in the program's stored log. Followers detect gaps by the offsets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part

#: Maximum number of units that users follow at the same time. With 256 KiB per job, their output needs 64 MiB.
MOST_FOLLOWED = 256
#: Milliseconds for which a request to follow a unit is valid.
FOLLOW_MS = 15_000
#: Maximum number of bytes and maximum number of chunks in one call.
MAX_BYTES, MOST_CHUNKS = 64 << 10, 1000
#: Position before the first entry of a stream.
BEGINNING = "0-0"


class Chunk(NamedTuple):
    """Consecutive bytes of a program's output."""

    #: Offset of the bytes in the complete output of the attempt.
    offset: int
    #: Stream of the bytes: o for stdout, e for stderr.
    stream: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Entry in the output stream of a job."""

    #: Position of the entry in the stream.
    id: str
    unit: int
    attempt: int
    #: ID of the run of the program. After a lost worker, a second run has the same attempt number.
    run: str
    chunks: tuple[Chunk, ...]


class LiveOutput(Part):
    """Stores and reads the live output of programs in Redis."""

    def add(
        self, job: str, token: str, unit: int, attempt: int, offset: int, chunks: Sequence[tuple[str, bytes]]
    ) -> str:
        """Store live output of a leased unit. Return `kept`, or the reason why the output was not stored.

        dropped: the job's output exceeds the maximum rate. alone: no user follows the unit. stale: the lease has ended.
        """
        head = json.dumps([[stream, len(data)] for stream, data in chunks], separators=(",", ":"))
        data = b"".join([head.encode(), b"\n", *(data for _, data in chunks)])
        run = hashlib.sha256(token.encode()).hexdigest()[:8]
        reply: bytes = self._functions.run("add_output", job, token, unit, attempt, offset, run, data)
        return reply.decode()

    def follow(self, job: str, unit: int, tenant: str) -> int:
        """Follow the output of a unit for FOLLOW_MS milliseconds. Return the time until which it is followed, or 0.

        Return 0 if MOST_FOLLOWED units are followed and no tenant follows at least two more than this one. Otherwise,
        such a tenant loses a followed unit.
        """
        return int(self._functions.run("follow", job, unit, tenant, FOLLOW_MS, MOST_FOLLOWED))

    def leave(self, job: str, unit: int, tenant: str, until: int) -> None:
        """Stop following a unit, unless a later call of `follow` has extended the time `until`."""
        self._functions.run("follow", job, unit, tenant, 0, until)

    def followed(self, now_ms: float) -> frozenset[str]:
        """Return the jobs whose output any user follows at this Redis time."""
        [members] = unreadable_entries.replies(self._pipe().zrangebyscore(keys.FOLLOWED, now_ms, "+inf"))
        jobs = (member.decode(errors="replace").rpartition("|")[0] for member in members or ())
        return frozenset(job.rpartition("/")[2] for job in jobs)

    def after(self, job: str, place: str) -> list[Lines]:
        """Return the stored output of a job after a position."""
        [entries] = unreadable_entries.replies(self._pipe().xrange(keys.output(job), f"({place}", "+"))
        return _readable(entries or ())

    def wait(self, places: Mapping[str, str], *, block_ms: int) -> dict[str, list[Lines]]:
        """Wait up to `block_ms` milliseconds for new output of jobs, and return it.

        `places` contains the position of each job after which output is new.
        """
        asked: Any = {keys.output(job): place for job, place in places.items()}
        reply = self._client.xread(asked, block=block_ms)
        rows = reply.items() if isinstance(reply, dict) else reply or ()
        jobs = {keys.output(job).encode(): job for job in places}
        return {jobs[name]: _readable(_flat(entries)) for name, entries in rows}


def _flat(entries: Any) -> Any:
    return entries[0] if entries and isinstance(entries[0], list) else entries


def _readable(entries: Any) -> list[Lines]:
    return unreadable_entries.readable("output", entries, _lines)


def _lines(place: bytes, fields: Mapping[bytes, bytes]) -> Lines:
    head, _, rest = fields[b"data"].partition(b"\n")
    offset, at, chunks = int(fields[b"offset"]), 0, list[Chunk]()
    for stream, size in json.loads(head):
        chunks.append(Chunk(offset + at, str(stream), rest[at : at + size]))
        at += size
    return Lines(
        id=place.decode(),
        unit=int(fields[b"unit"]),
        attempt=int(fields[b"attempt"]),
        run=fields[b"run"].decode(),
        chunks=tuple(chunks),
    )
