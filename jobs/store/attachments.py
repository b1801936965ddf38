"""Attachments: shells beside running programs, whose bytes pass through Redis in bounded streams.

Each direction is a stream of bytes with places: what is written twice from a place is there once, what was read is
dropped, and who writes beyond what may wait for its reader is told how far it came.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jobs.store import keys, skipped
from jobs.store.server.connection import Unreadable
from jobs.store.server.functions import Part

#: Attachments at once at most: of a unit, of a tenant's jobs, of the cluster.
OF_A_UNIT, OF_A_TENANT, OF_ALL = 2, 16, 128
#: Seconds after which one ends whose principal is not heard.
SILENT_SECONDS = 30
#: Bytes of one write at most.
MAX_BYTES = 16 << 10

Side = Literal["in", "out"]


class Asked(NamedTuple):
    """An attachment as a runner is told of it."""

    job: str
    unit: int
    id: str


class Chunk(NamedTuple):
    """Bytes in a row."""

    #: o: stdout or a terminal, e: stderr, i: what was typed.
    stream: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Read:
    """Bytes that are there for a reader, and how the attachment stands."""

    #: asked, running or ended.
    state: str
    #: Exit code of the shell that has ended; None where it did not end by itself.
    exit: int | None
    #: Why it ended, where it did not by itself.
    reason: str
    #: Rows and columns of the terminal; empty: as asked for.
    size: str
    #: Nothing comes after these bytes.
    closed: bool
    #: Runner that has taken it; empty: none has.
    worker: str
    #: Place behind the last of these bytes.
    upto: int
    chunks: tuple[Chunk, ...]


class Attachments(Part):
    """Attachments on one Redis. Principals are named by their tokens, runners by their leases."""

    def ask(self, attachment: str, *, tenant: str, job: str, unit: int, owner: str, about: Mapping[str, Any]) -> str:
        """Ask for one: ok, also when it is there; other: its id is somebody else's; unit, tenant, all: too many."""
        text = json.dumps(about, separators=(",", ":"))
        bounds = (OF_A_UNIT, OF_A_TENANT, OF_ALL)
        reply: bytes = self._functions.run("attach", attachment, tenant, job, unit, owner, text, *bounds)
        return reply.decode()

    def asked(self, jobs: Set[str]) -> list[Asked]:
        """Return those of these jobs' units."""
        [members] = skipped.replies(self._pipe().zrange(keys.ATTACHMENTS, 0, -1))
        found = skipped.readable("attachment", ((member, None) for member in members or ()), _asked)
        return [one for one in found if one.job in jobs]

    def take(self, attachment: str, job: str, token: str, unit: int) -> dict[str, Any] | None:
        """Begin one beside a unit of this lease; return what was asked for, or None when it is over or not for it."""
        text = self._functions.run("attach_take", attachment, job, token, unit)
        try:
            return dict(json.loads(text)) if text else None
        except Unreadable:
            return None

    def write(
        self, attachment: str, side: Side, who: str, offset: int, chunk: Chunk, *, closed: bool = False, size: str = ""
    ) -> tuple[str, int] | None:
        """Add bytes from a place on; return the state and how far they are there. None: who writes has none such."""
        reply = self._functions.words(
            "attach_write", attachment, side, who, offset, chunk.data, chunk.stream, int(closed), size
        )
        return (reply[0], int(reply[1])) if reply else None

    def read(self, attachment: str, side: Side, who: str, after: int) -> Read | None:
        """Return what was written after a place, and drop what is before it. None: who reads has none such."""
        reply: list[bytes] = self._functions.run("attach_read", attachment, side, who, after)
        if not reply:
            return None
        state, code, reason, size, closed, worker, upto = (word.decode(errors="replace") for word in reply[:7])
        chunks = zip(reply[7::2], reply[8::2], strict=True)
        return Read(
            state=state,
            exit=int(code) if code else None,
            reason=reason,
            size=size,
            closed=closed == "1",
            worker=worker,
            upto=int(upto),
            chunks=tuple(Chunk(stream.decode(), data) for stream, data in chunks),
        )

    def asked_by(self, attachment: str, owner: str) -> Asked | None:
        """Return where one belongs that this principal asked for."""
        job, unit, by = self._client.hmget(keys.attachment(attachment), "job", "unit", "owner")
        return Asked(job.decode(), int(unit), attachment) if job and by == owner.encode() else None

    def end(self, attachment: str, who: str, code: int | None, reason: str) -> bool:
        """End one; False: who ends it has none such."""
        return bool(self._functions.run("attach_end", attachment, who, "" if code is None else code, reason))

    def sweep(self) -> int:
        """End attachments whose clients were silent for SILENT_SECONDS; return how many remain. The leader calls it."""
        return int(self._functions.run("attach_sweep"))

    def newest_wake(self) -> str:
        """Return the place of the last wake, from which `woken` goes on."""
        [entries] = skipped.replies(self._pipe().xrevrange(keys.ATTACHMENT_WAKES, count=1))
        return str(entries[0][0].decode()) if entries else "0-0"

    def woken(self, place: str, *, block_ms: int) -> tuple[str, set[str]]:
        """Return the attachments of which something changed since a place, and the next place; none after a while."""
        reply = self._client.xread({keys.ATTACHMENT_WAKES: place}, block=block_ms)
        rows = next(iter(reply.values()) if isinstance(reply, dict) else (row[1] for row in reply or ()), None) or []
        entries = rows[0] if rows and isinstance(rows[0], list) else rows
        ids = {fields[b"id"].decode(errors="replace") for _, fields in entries if b"id" in fields}
        return (entries[-1][0].decode() if entries else place), ids


def _asked(member: bytes, _: None) -> Asked:
    whose, unit, attachment = member.decode().split("|")
    return Asked(whose.rpartition("/")[2], int(unit), attachment)
