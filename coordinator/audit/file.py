"""AUDIT_FILE: the audit log as an append-only file with lines of JSON.

A line is `{"seq":N,...,"hash":"H","sha256":"S"}`. S is the SHA-256 of the previous line's S and of this line's text
before `"sha256"`. If earlier entries are missing, a line `{"after":N,"hash":"H","sha256":"S"}` names the last missing
entry.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jobs.store.tenancy.audit_log import START, Entry, Position

_ROOT = "0" * 64
_LINE = re.compile(rb'\{"(?:seq|after)":(\d+),(?:.*,)?"hash":"([0-9a-f]{40})","sha256":"([0-9a-f]{64})"\}')
#: Read size in bytes.
_BLOCK = 1 << 16


class BrokenFile(Exception):
    """The file contains a line that is not from an audit log."""


class End(NamedTuple):
    """Last line of an audit file."""

    position: Position
    sha256: str


class AuditFile:
    """Audit file that only this process writes. Opening the file removes an incomplete last line."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._remove_incomplete_line()

    def end(self) -> End:
        """Return the last line. Raise BrokenFile if the line is not valid."""
        return next(self._lines(), End(START, _ROOT))

    def hashes(self, first: int) -> dict[int, str]:
        """Return the hashes of entries by entry number, starting with entry `first`."""
        by_number: dict[int, str] = {}
        for line in self._lines():
            if line.position.seq < first:
                break
            by_number[line.position.seq] = line.position.hash
        return by_number

    def append(self, after: Position | None, entries: Sequence[Entry]) -> None:
        """Append entries, and wait until they are on disk.

        `after` is the previous entry if the file lacks that entry.
        """
        texts = [] if after is None else [b'{"after":%d,"hash":"%b"}' % (after.seq, after.hash.encode())]
        digest, lines = self.end().sha256, []
        for text in (*texts, *(entry.line for entry in entries)):
            digest = hashlib.sha256(digest.encode() + text).hexdigest()
            lines.append(b'%b,"sha256":"%b"}\n' % (text[:-1], digest.encode()))
        size = os.fstat(self._descriptor).st_size
        try:
            self._write(b"".join(lines))
        except OSError:
            # Remove the new lines, because they may not have reached the disk.
            os.ftruncate(self._descriptor, size)
            raise

    def _write(self, text: bytes) -> None:
        left = memoryview(text)
        while left:
            left = left[os.write(self._descriptor, left) :]
        self.sync()

    def sync(self) -> None:
        """Flush the file to disk."""
        os.fsync(self._descriptor)

    def _remove_incomplete_line(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if not size or os.pread(self._descriptor, 1, size - 1) == b"\n":
            return
        texts = self._texts()
        torn, before = next(texts), next(texts, None)
        if not _is_beginning(torn) or (before is not None and not _LINE.fullmatch(before)):
            raise self._broken()
        os.ftruncate(self._descriptor, size - len(torn))

    def _broken(self) -> BrokenFile:
        return BrokenFile(f"{self._path} contains a line that is not from an audit log; move the file away")

    def _lines(self) -> Iterator[End]:
        """Yield the lines, starting with the last one."""
        for text in self._texts():
            parts = _LINE.fullmatch(text)
            if parts is None:
                raise self._broken()
            yield End(Position(int(parts[1]), parts[2].decode()), parts[3].decode())

    def _texts(self) -> Iterator[bytes]:
        at, rest = os.fstat(self._descriptor).st_size, b""
        while at > 0:
            size = min(at, _BLOCK)
            at -= size
            rest, *texts = (os.pread(self._descriptor, size, at) + rest).split(b"\n")
            yield from filter(None, reversed(texts))
        if rest:
            yield rest


def _is_beginning(text: bytes) -> bool:
    """Return True if the text is the start of a line. After a power failure, the text can end with zero bytes."""
    written = text.rstrip(b"\0")
    return any(name.startswith(written[: len(name)]) for name in (b'{"seq":', b'{"after":'))


@contextmanager
def open_locked(path: Path) -> Iterator[AuditFile | None]:
    """Open and lock the file, and create it if necessary. Yield None if another process has locked the file."""
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        if is_new:
            _sync_folder(path.parent)
        yield AuditFile(descriptor, path)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
