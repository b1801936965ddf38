"""Attachments: shells in running programs. Their input and output pass through streams of limited size in Redis.

Each direction is a stream with byte offsets. Data written twice at an offset is stored once, and data that was read is
dropped. Each write returns the accepted offset, so that a writer can wait for its reader.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jobs.store import keys, unreadable_entries
from jobs.store.server.connection import Unreadable
from jobs.store.server.functions import Part

#: Maximum number of attachments: per unit, per tenant and in the cluster.
OF_A_UNIT, OF_A_TENANT, OF_ALL = 2, 16, 128
#: Seconds after which an attachment ends if its user sends no request.
SILENT_SECONDS = 30
#: Maximum number of bytes per write.
MAX_BYTES = 16 << 10

Side = Literal["in", "out"]


class Asked(NamedTuple):
    """Request for an attachment, as reported to a runner."""

    job: str
    unit: int
    id: str


class Chunk(NamedTuple):
    """Consecutive bytes of one input or output stream."""

    #: Stream: o for stdout or a terminal, e for stderr, i for input.
    stream: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Read:
    """Unread bytes of a stream, and the current state of the attachment."""

    #: State of the attachment: asked, running or ended.
    state: str
    #: Exit code of the shell, or None if the shell has not exited.
    exit: int | None
    #: Reason for the end of the attachment, if the shell did not exit by itself.
    reason: str
    #: New rows and columns of the terminal, or empty if the size did not change.
    size: str
    #: True if no more bytes follow in the stream.
    closed: bool
    #: Name of the runner, or empty if no runner has started the attachment.
    worker: str
    #: Stream offset after the last returned byte.
    upto: int
    chunks: tuple[Chunk, ...]


class Attachments(Part):
    """Stores attachments in Redis. Users access attachments with their tokens, and runners with their leases."""

    def ask(self, attachment: str, *, tenant: str, job: str, unit: int, owner: str, about: Mapping[str, Any]) -> str:
        """Request an attachment. Return `ok`, or the reason why the request is rejected.

        The result is also `ok` if the attachment exists. The reasons are `unit`, `tenant` and `all` for a reached
        limit, and `other` if the ID belongs to another user.
        """
        text = json.dumps(about, separators=(",", ":"))
        bounds = (OF_A_UNIT, OF_A_TENANT, OF_ALL)
        reply: bytes = self._functions.run("attach", attachment, tenant, job, unit, owner, text, *bounds)
        return reply.decode()

    def asked(self, jobs: Set[str]) -> list[Asked]:
        """Return the attachments to units of `jobs` that users have requested."""
        [members] = unreadable_entries.replies(self._pipe().zrange(keys.ATTACHMENTS, 0, -1))
        found = unreadable_entries.readable("attachment", ((member, None) for member in members or ()), _asked)
        return [one for one in found if one.job in jobs]

    def take(self, attachment: str, job: str, token: str, unit: int) -> dict[str, Any] | None:
        """Start an attachment to a unit of a lease. Return the request, or None if the attachment cannot be started.

        It cannot be started if it has ended or belongs to another unit.
        """
        text = self._functions.run("attach_take", attachment, job, token, unit)
        try:
            return dict(json.loads(text)) if text else None
        except Unreadable:
            return None

    def write(
        self, attachment: str, side: Side, who: str, offset: int, chunk: Chunk, *, closed: bool = False, size: str = ""
    ) -> tuple[str, int] | None:
        """Append bytes to a stream at an offset. Return the attachment's state and the offset up to which bytes were
        accepted.

        Returns None if the writer has no such attachment.
        """
        reply = self._functions.run_texts(
            "attach_write", attachment, side, who, offset, chunk.data, chunk.stream, int(closed), size
        )
        return (reply[0], int(reply[1])) if reply else None

    def read(self, attachment: str, side: Side, who: str, after: int) -> Read | None:
        """Return the bytes after an offset, and drop earlier bytes. Return None if the reader has no such
        attachment.
        """
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
        """Return the attachment if this user requested it, otherwise None."""
        job, unit, by = self._client.hmget(keys.attachment(attachment), "job", "unit", "owner")
        return Asked(job.decode(), int(unit), attachment) if job and by == owner.encode() else None

    def end(self, attachment: str, who: str, code: int | None, reason: str) -> bool:
        """End an attachment. Return False if the caller has no attachment with this ID."""
        return bool(self._functions.run("attach_end", attachment, who, "" if code is None else code, reason))

    def sweep(self) -> int:
        """End attachments whose users were silent for SILENT_SECONDS. Return the number of remaining attachments."""
        return int(self._functions.run("attach_sweep"))

    def newest_wake(self) -> str:
        """Return the stream position of the latest change to an attachment."""
        [entries] = unreadable_entries.replies(self._pipe().xrevrange(keys.ATTACHMENT_WAKES, count=1))
        return str(entries[0][0].decode()) if entries else "0-0"

    def woken(self, place: str, *, block_ms: int) -> tuple[str, set[str]]:
        """Wait up to `block_ms` for changes after a position. Return the new position and the changed attachments."""
        reply = self._client.xread({keys.ATTACHMENT_WAKES: place}, block=block_ms)
        rows = next(iter(reply.values()) if isinstance(reply, dict) else (row[1] for row in reply or ()), None) or []
        entries = rows[0] if rows and isinstance(rows[0], list) else rows
        ids = {fields[b"id"].decode(errors="replace") for _, fields in entries if b"id" in fields}
        return (entries[-1][0].decode() if entries else place), ids


def _asked(member: bytes, _: None) -> Asked:
    whose, unit, attachment = member.decode().split("|")
    return Asked(whose.rpartition("/")[2], int(unit), attachment)
