"""Verification that no line of an audit log was removed, changed or moved. docs/audit.md describes the format."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(
    rb'(?P<text>\{"(?P<what>seq|after)":(?P<number>\d{1,16}),(?:.*,)?"hash":"(?P<hash>[0-9a-f]{40})")'
    rb'(?:,"sha256":"(?P<sha256>[0-9a-f]{64})")?\}'
)


class Tampered(Exception):
    """A line of the audit log does not match the hash chain."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line, self.why = line, why


class MissingEntries(Tampered):
    """All lines of the audit log match the hash chain, but a line reports missing entries."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Result of verifying an audit log successfully."""

    #: Number of verified lines.
    lines: int
    first: int
    seq: int
    #: Hash of the last line. Store it outside of the cluster, so that you can later detect a rewritten log.
    head: str


class Chain:
    """Hash chain of the lines of an audit log. The lines are oldest first and have no newlines."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self._count = 0
        #: Number, SHA-1 and SHA-256 of the previous line in the log.
        self._seq, self._hash, self._sha256 = 0, "0" * 40, "0" * 64
        self._first = 0
        #: True if a line with the expected hash was read.
        self._seen_head = False
        #: Gaps that the log reports, each with its line number and the range of missing entries.
        self._gaps: list[tuple[int, str]] = []

    def verify(self, head: str = "") -> Verification:
        """Verify all lines of the log. If `head` is set, also require a line with this hash.

        Raises Tampered, or MissingEntries if the only problem is entries that the log itself reports as missing.
        """
        try:
            self._read_all(head)
        except Tampered as error:
            if self._gaps:
                raise Tampered(error.line, f"{error.why}; before this line, {self._describe_gaps()}") from None
            raise
        if self._gaps:
            raise MissingEntries(self._gaps[0][0], f"{self._describe_gaps()}; no existing line was altered")
        last = self._hash if self._sha256 == "0" * 64 else self._sha256
        return Verification(lines=self._count, first=self._first, seq=self._seq, head=last)

    def _read_all(self, head: str) -> None:
        for line in self._lines:
            self._count += 1
            self._read_line(line)
            self._seen_head |= head in (self._hash, self._sha256)
        if head and not self._seen_head:
            raise Tampered(self._count + 1, f"no line has the hash {head}: {self._explain_missing_head()}")

    def _describe_gaps(self) -> str:
        entries = ", ".join(entries for _, entries in self._gaps)
        return (
            f"entries {entries} are missing: they were dropped before their export, or another "
            "coordinator's AUDIT_FILE has them"
        )

    def _explain_missing_head(self) -> str:
        why = "lines were removed, or the log was rewritten"
        return f"{why}, or the line is older than entry {self._first}, the first entry here" if self._first > 1 else why

    def _read_line(self, line: bytes) -> None:
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise Tampered(self._count, "this is not a line of an audit log")
        number, digest = int(parts["number"]), parts["hash"].decode()
        if parts["what"] == b"after":
            self._record_gap(number, digest)
        else:
            self._check(number, digest, parts["text"])
            self._first = self._first or number
        self._seq, self._hash = number, digest
        self._check_sha256(parts["text"], parts["sha256"])

    def _record_gap(self, number: int, digest: str) -> None:
        """Record a gap of missing entries, unless the gap is before the first line."""
        if self._count > 1 and number < self._seq:
            raise Tampered(self._count, f"the line names entry {number} after entry {self._seq}: lines were moved")
        if self._count > 1 and number > self._seq:
            self._gaps.append((self._count, f"{self._seq + 1} to {number}"))
        elif self._count > 1 and digest != self._hash:
            raise Tampered(self._count, f"the line contains a different hash for entry {number}")

    def _check(self, number: int, digest: str, text: bytes) -> None:
        if number != self._seq + 1:
            raise Tampered(
                self._count, f"expected entry {self._seq + 1}, got entry {number}: lines were removed or moved"
            )
        body = text[: text.rindex(b',"hash":')] + b"}"
        if hashlib.sha1(self._hash.encode() + body, usedforsecurity=False).hexdigest() != digest:
            raise Tampered(self._count, f"entry {number} or the previous entry was changed")

    def _check_sha256(self, text: bytes, digest: bytes | None) -> None:
        if digest is None and self._sha256 == "0" * 64:
            return
        if digest is None:
            raise Tampered(self._count, "the SHA-256 is missing, although the previous line has one")
        if hashlib.sha256(self._sha256.encode() + text + b"}").hexdigest() != digest.decode():
            raise Tampered(self._count, "the SHA-256 does not match: this line or the previous line was changed")
        self._sha256 = digest.decode()
