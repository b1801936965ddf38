"""Files of profile recordings: their names, recovery after a crash, and compression for upload."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import re
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.store.profiles import PART_BYTES, Recording

_NAME = re.compile(r"(?P<profile>[0-9a-f]{16})\.(?P<recording>[A-Za-z0-9._-]{1,100})\.jsonl")
_PIECE = 1 << 20
#: Maximum length in bytes of a line that is parsed; samples are shorter.
_LINE = 1 << 16


class Unusable(Exception):
    """The folder of recordings is not usable; the message contains the reason and a solution."""


def prepare(folder: Path) -> None:
    """Create the folder for recordings, accessible only to this user. Raises Unusable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = os.lstat(folder)
    except OSError as error:
        raise Unusable(
            f"cannot create {folder}: {error.strerror}; set PROFILE_DIR to a folder that this user can write"
        ) from None
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
        detail = "must be a folder that belongs to this user and that no other user can write"
        raise Unusable(f"{folder} {detail}; set PROFILE_DIR to another folder")


def path(folder: Path, profile_id: str, recording: str) -> Path:
    """Return the file path of a recording."""
    return folder / f"{profile_id}.{recording}.jsonl"


def left(folder: Path, profile_id: str | None = None) -> list[tuple[str, str]]:
    """Return the recordings in a folder, of one profile or of all profiles, as pairs (profile, recording)."""
    try:
        found = [match for file in sorted(folder.iterdir()) if (match := _NAME.fullmatch(file.name))]
    except OSError:
        return []
    return [(one["profile"], one["recording"]) for one in found if profile_id in (None, one["profile"])]


class Parcel:
    """A finished recording that this process has locked, and that a background thread compresses for upload."""

    def __init__(self, folder: Path, profile_id: str, name: str, descriptor: int) -> None:
        self.profile_id, self.recording = profile_id, Recording(name=name, host="", devices=())
        self._path = path(folder, profile_id, name)
        self._packed = self._path.with_suffix(".jsonl.gz")
        self._descriptor = descriptor
        self._packing: threading.Thread | None = None
        #: Error of the last compression, or an empty string.
        self.trouble = ""

    @classmethod
    def take(cls, folder: Path, profile_id: str, name: str) -> Parcel | None:
        """Lock a recording and return it. Return None if another process uses it or the file does not exist."""
        try:
            descriptor = os.open(path(folder, profile_id, name), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return cls(folder, profile_id, name, descriptor)
        except OSError:
            pass
        os.close(descriptor)
        return None

    def pack(self) -> None:
        """Start the compression of the recording, unless it has been started.

        After the compression, `recording` has a size.
        """
        if self._packing is None:
            self._packing = threading.Thread(target=self._pack, name="pack-profile", daemon=True)
            self._packing.start()

    def part(self, number: int) -> bytes:
        """Return the bytes of a part of the compressed file."""
        with self._packed.open("rb") as file:
            file.seek(number * PART_BYTES)
            return file.read(PART_BYTES)

    def release(self) -> None:
        """Release the lock, so that another process can take the recording."""
        self._settle()
        os.close(self._descriptor)

    def remove(self) -> None:
        """Delete the files of a recording that is stored elsewhere or no longer needed."""
        self._settle()
        for each in (self._packed, self._path):
            with contextlib.suppress(OSError):
                each.unlink()
        os.close(self._descriptor)

    def _settle(self) -> None:
        if self._packing:
            self._packing.join()

    def _pack(self) -> None:
        try:
            told = self._written()
            size, sha = _digest(self._packed)
        except OSError as error:
            self.trouble = error.strerror or str(error)
            self._packing = None  # The next round repeats the compression.
            return
        self.trouble = ""
        self.recording = replace(told, size=size, sha=sha)

    def _written(self) -> Recording:
        seen = _Seen()
        # Compression must be deterministic, so that parts that were uploaded before a crash stay valid.
        with (
            self._path.open("rb") as raw,
            self._packed.open("wb") as packed,
            gzip.GzipFile("", "wb", 6, packed, mtime=0) as file,
        ):
            while piece := raw.read(_PIECE):
                file.write(piece)
                seen.add(piece)
        return seen.recording(self.recording.name)


class _Seen:
    """Summary of a recording: its first line, its last complete line, and the number of lines."""

    def __init__(self) -> None:
        self._lines = self._bytes = 0
        self._head, self._tail = b"", b""

    def add(self, piece: bytes) -> None:
        self._lines += piece.count(b"\n")
        self._bytes += len(piece)
        if len(self._head) < _LINE:
            self._head += piece[: _LINE - len(self._head)]
        self._tail = (self._tail + piece)[-_LINE:]

    def recording(self, name: str) -> Recording:
        head = _object(self._head.split(b"\n", 1)[0])
        whole = [line for line in (_object(text) for text in self._tail.split(b"\n")) if line]
        last = whole[-1] if whole else {}
        ended = "end" in last
        known = {"samples": max(0, self._lines - 1), "missed": 0, "seconds": last.get("t", 0.0)} | (
            {field: last[field] for field in ("samples", "missed", "seconds", "cpu_seconds") if field in last}
        )
        return Recording(
            name=name,
            host=str(head.get("host", "")),
            devices=tuple(map(str, head.get("devices", ()))),
            bytes=self._bytes,
            reason=str(last["end"]) if ended else "killed",
            samples=int(known["samples"]),
            missed=int(known["missed"]),
            seconds=float(known["seconds"]),
            cpu_seconds=float(known.get("cpu_seconds", 0.0)),
        )


def _object(text: bytes) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}


def _digest(file: Path) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as packed:
        while piece := packed.read(_PIECE):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()
