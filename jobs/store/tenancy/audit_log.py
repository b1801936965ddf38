"""The audit log: who changed what, and what was denied, as a chain of hashes that functions append to.

The line of an entry is `{"seq":N,BODY,"hash":"H"}`: JSON whose text is kept as it was written. H is the SHA-1, all that
functions have, of the hash before it and of `{"seq":N,BODY}`; before the first entry it is ROOT.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

from jobs.models import Actor
from jobs.store import keys, skipped
from jobs.store.server.functions import Part

ROOT = "0" * 40


class Position(NamedTuple):
    """Place in the chain: the number and the hash of an entry; 0 and ROOT before the first."""

    seq: int
    hash: str


START = Position(0, ROOT)


class Entry(NamedTuple):
    """Entry of the log."""

    seq: int
    hash: str
    body: bytes

    @property
    def line(self) -> bytes:
        """The entry as JSON."""
        return b'{"seq":%d,%b,"hash":"%b"}' % (self.seq, self.body, self.hash.encode())

    def follows(self, before: Position) -> bool:
        """Return True when this is the entry after `before`, with the hash that it must have."""
        text = b'%b{"seq":%d,%b}' % (before.hash.encode(), self.seq, self.body)
        return self.seq == before.seq + 1 and hashlib.sha1(text, usedforsecurity=False).hexdigest() == self.hash


class Denied(NamedTuple):
    """Calls that were refused, of one caller for one reason."""

    actor: Actor
    #: Network address.
    source: str
    reason: str
    times: int


class Log(NamedTuple):
    """Part of the log, read at one moment."""

    #: Its last entry, the last that Redis no longer keeps, and the last in AUDIT_FILE.
    head: Position
    dropped: Position
    exported: int
    entries: list[Entry]


class AuditLog(Part):
    """Reads the log, adds denied calls, and moves it on for the leader. What changes something logs itself."""

    def read(self, after: int, most: int) -> Log:
        """Return at most `most` entries with numbers above `after`."""
        return self._log(("XRANGE", keys.AUDIT_LOG, f"({after}-0", "+", "COUNT", str(most)))

    def newest(self, most: int) -> Log:
        """Return the last `most` entries."""
        log = self._log(("XREVRANGE", keys.AUDIT_LOG, "+", "-", "COUNT", str(most)))
        return log._replace(entries=log.entries[::-1])

    def up_to(self, last: int) -> Log:
        """Return all entries that are kept with numbers up to `last`."""
        return self._log(("XRANGE", keys.AUDIT_LOG, "-", f"{last}-0"))

    def hash_of(self, seq: int) -> str | None:
        """Return the hash of an entry; None when it is not kept."""
        entries = self._log(("XRANGE", keys.AUDIT_LOG, f"{seq}-0", f"{seq}-0")).entries
        return entries[0].hash if entries else None

    def unexported_seconds(self) -> float:
        """Return the age of the oldest entry that AUDIT_FILE does not have yet, by Redis' clock; 0 without one.

        An entry from a time that has not come counts as old: the clock was set back, and it may lack for long.
        """
        last = self.newest(1)
        if last.head.seq <= last.exported:
            return 0.0
        waiting = ((entry.seq, entry.body) for entry in self.read(last.exported, 1).entries)
        written = skipped.readable("audit", waiting, lambda _, body: float(json.loads(b"{%b}" % body)["t"]) / 1000)
        seconds, micros = self._client.time()
        now = float(seconds + micros / 1e6)
        return abs(now - min(written, default=now))

    def _log(self, command: Sequence[str]) -> Log:
        head, rows = skipped.replies_at_once(self._functions, ("HGETALL", keys.AUDIT_HEAD), command)
        entries = skipped.readable("audit", rows or (), _entry)
        words = [word.decode(errors="replace") for word in head or ()]
        fields = dict(zip(words[::2], words[1::2], strict=True))
        return Log(
            _position(fields, "seq", "hash"),
            _position(fields, "dropped_seq", "dropped_hash"),
            _number(fields.get("exported")),
            entries,
        )

    def deny(self, calls: Sequence[Denied]) -> None:
        """Write one entry for each of these."""
        rows = [[*one.actor, one.source, one.reason, one.times] for one in calls]
        self._functions.run("log_denied", json.dumps(rows))

    def trim(self, keep: int, *, slack: int = 0, exported: int | None = None) -> int:
        """Drop all but the last `keep` entries once there are `slack` more; return how many.

        With `exported`, the number of the last entry in AUDIT_FILE, none after that is dropped. Without it, an entry
        `trimmed` names those that are lost.
        """
        return int(self._functions.run("log_trim", keep, slack, "" if exported is None else exported))

    def rebase(self, end: Position, void: int, seen: Position) -> bool:
        """Let the log go on from `end`, the last entry in AUDIT_FILE; Redis has forgotten the entries from `void` on.

        False, and nothing changed, when the log's head is not `seen` any more.
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
