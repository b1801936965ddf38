"""Audit log of changes and denied calls. It is a hash chain to which the Redis functions append.

The line of an entry is `{"seq":N,BODY,"hash":"H"}`, JSON whose text is stored as written. H is the SHA-1 of the
previous hash and `{"seq":N,BODY}`, because Redis functions have no other hash. The hash before the first entry is ROOT.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

from jobs.models import Actor
from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part

ROOT = "0" * 40


class Position(NamedTuple):
    """Position in the audit log: number and hash of an entry. Before the first entry, they are 0 and ROOT."""

    seq: int
    hash: str


START = Position(0, ROOT)


class Entry(NamedTuple):
    """Entry of the audit log."""

    seq: int
    hash: str
    body: bytes

    @property
    def line(self) -> bytes:
        """Return the entry as one line of JSON."""
        return b'{"seq":%d,%b,"hash":"%b"}' % (self.seq, self.body, self.hash.encode())

    def follows(self, before: Position) -> bool:
        """Return True if this entry directly follows the position `before` and its hash is valid."""
        text = b'%b{"seq":%d,%b}' % (before.hash.encode(), self.seq, self.body)
        return self.seq == before.seq + 1 and hashlib.sha1(text, usedforsecurity=False).hexdigest() == self.hash


class Denied(NamedTuple):
    """Calls of one user that were denied for the same reason."""

    actor: Actor
    #: Network address from which the calls came.
    source: str
    reason: str
    times: int


class Log(NamedTuple):
    """Part of the audit log that was read atomically."""

    #: Position of the last entry.
    head: Position
    dropped: Position
    exported: int
    entries: list[Entry]


class AuditLog(Part):
    """Reads and trims the audit log in Redis, and adds denied calls."""

    def read(self, after: int, most: int) -> Log:
        """Return up to `most` entries that follow entry number `after`."""
        return self._log(("XRANGE", keys.AUDIT_LOG, f"({after}-0", "+", "COUNT", str(most)))

    def newest(self, most: int) -> Log:
        """Return the last `most` entries of the audit log."""
        log = self._log(("XREVRANGE", keys.AUDIT_LOG, "+", "-", "COUNT", str(most)))
        return log._replace(entries=log.entries[::-1])

    def up_to(self, last: int) -> Log:
        """Return all stored entries up to entry number `last`."""
        return self._log(("XRANGE", keys.AUDIT_LOG, "-", f"{last}-0"))

    def hash_of(self, seq: int) -> str | None:
        """Return the hash of an entry, or None if the entry is not stored any more."""
        entries = self._log(("XRANGE", keys.AUDIT_LOG, f"{seq}-0", f"{seq}-0")).entries
        return entries[0].hash if entries else None

    def unexported_seconds(self) -> float:
        """Return the age in seconds of the oldest entry that is not in AUDIT_FILE, or 0 if all entries are.

        An entry from the future also counts as old: after the clock was set back, it may have waited for long.
        """
        last = self.newest(1)
        if last.head.seq <= last.exported:
            return 0.0
        waiting = ((entry.seq, entry.body) for entry in self.read(last.exported, 1).entries)
        written = unreadable_entries.readable(
            "audit", waiting, lambda _, body: float(json.loads(b"{%b}" % body)["t"]) / 1000
        )
        seconds, micros = self._client.time()
        now = float(seconds + micros / 1e6)
        return abs(now - min(written, default=now))

    def _log(self, command: Sequence[str]) -> Log:
        head, rows = unreadable_entries.replies_at_once(self._functions, ("HGETALL", keys.AUDIT_HEAD), command)
        entries = unreadable_entries.readable("audit", rows or (), _entry)
        words = [word.decode(errors="replace") for word in head or ()]
        fields = dict(zip(words[::2], words[1::2], strict=True))
        return Log(
            _position(fields, "seq", "hash"),
            _position(fields, "dropped_seq", "dropped_hash"),
            _number(fields.get("exported")),
            entries,
        )

    def deny(self, calls: Sequence[Denied]) -> None:
        """Add an entry to the audit log for each item in `calls`."""
        rows = [[*one.actor, one.source, one.reason, one.times] for one in calls]
        self._functions.run("log_denied", json.dumps(rows))

    def trim(self, keep: int, *, slack: int = 0, exported: int | None = None) -> int:
        """Drop old entries and keep the last `keep`, if more than `keep` + `slack` exist. Return the number of dropped
        entries.

        If `exported` (the number of the last entry in AUDIT_FILE) is set, no later entry is dropped. Otherwise, an
        entry `trimmed` records which entries were dropped.
        """
        return int(self._functions.run("log_trim", keep, slack, "" if exported is None else exported))

    def rebase(self, end: Position, void: int, seen: Position) -> bool:
        """Continue the audit log after `end`, the last entry in AUDIT_FILE, because Redis has lost entries.

        Redis lacks the entries from number `void` on.
        """
        return bool(self._functions.run("log_rebase", end.seq, end.hash, void, seen.hash))


def _entry(name: bytes, stored: Sequence[bytes]) -> Entry:
    fields = dict(zip(stored[::2], stored[1::2], strict=True))
    return Entry(int(name.split(b"-")[0]), fields[b"hash"].decode("ascii"), fields[b"body"])


def _position(fields: dict[str, str], seq: str, digest: str) -> Position:
    number = _number(fields.get(seq))
    return Position(number, fields[digest]) if number and digest in fields else START


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
