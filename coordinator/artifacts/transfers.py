"""Upload and download files in parts. Uploads are verified by their SHA-256."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from coordinator.artifacts.blobs import Blobs, Lost
from jobs import errors
from jobs.store import files
from jobs.store.files import PART_BYTES, CapExceeded, Files, StoredFile, Upload
from threads_protocol import bundles, manifest
from threads_protocol.errors import MalformedText, TooLarge

Body = TypeVar("Body")

#: Read size in bytes for downloads and verification.
_PIECE = 1 << 20
_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")


@dataclass(frozen=True, kw_only=True)
class MissingUploads:
    """Requested files that the tenant has not uploaded."""

    missing: list[str]
    #: Numbers of the stored parts, keyed by the SHA-256 of the unfinished file.
    parts: dict[str, list[int]]


@dataclass(frozen=True, kw_only=True)
class Download:
    """File, or byte range of a file, that is ready to download."""

    size: int
    #: First byte and end (exclusive) of the requested range, or None for the whole file.
    span: tuple[int, int] | None
    pieces: Iterator[bytes]


class Transfers:
    """Uploads and downloads of tenants' files. The contents are in the artifact store, and the index is in Redis."""

    def __init__(self, index: Files, blobs: Blobs) -> None:
        self._index = index
        self.blobs = blobs

    # -- uploads -------------------------------------------------------------------------------------------------------

    def find_missing(self, tenant: str, shas: Sequence[str]) -> MissingUploads:
        """Return the files that a tenant has not uploaded. Existing files are kept for at least one day."""
        missing = self._index.missing(tenant, shas)
        return MissingUploads(missing=missing, parts=self._index.uploads(tenant, missing))

    def put_bundle(self, tenant: str, body: bytes) -> tuple[int, int]:
        """Store the files of a bundle. Return the number of new files and their size in bytes."""
        sent = parse_body(bundles.unpack, body)
        lacked = set(self._index.missing(tenant, list(sent)))
        rows = {sha: (files.new_object(), data) for sha, data in sent.items() if sha in lacked}
        added = self._add(tenant, rows)
        return len(added), sum(len(rows[sha][1]) for sha in added)

    def put_part(self, tenant: str, sha: str, size: int, number: int, data: bytes) -> list[int]:
        """Store one part of a file, or a whole small file. Return the numbers of the missing parts."""
        _check_part(size, number, len(data))
        if size <= PART_BYTES:
            if hashlib.sha256(data).hexdigest() != sha:
                raise errors.InvalidRequest(
                    f"the SHA-256 of the body is not {sha}; upload the file again", field="body"
                )
            if self._index.missing(tenant, [sha]):
                self._add(tenant, {sha: (files.new_object(), data)})
            return []
        if self._index.get(tenant, sha):
            return []
        begun = self._index.upload(tenant, sha)
        if begun is None or number not in begun.objects:
            self.add_part(tenant, sha, size, number, data)
            begun = self._index.upload(tenant, sha)
        if begun is None and self._index.get(tenant, sha):
            return []
        there = begun.objects if begun else {}
        return [each for each in range(_count(size)) if each not in there]

    def complete(self, tenant: str, sha: str) -> None:
        """Verify the uploaded parts of a file, and store them as one file. Do nothing if the file is already stored.

        Raise Conflict if parts are missing. If the SHA-256 does not match, delete the parts and raise InvalidRequest.
        """
        begun = self._index.upload(tenant, sha)
        # Read the index after the parts, because another upload may have just stored the same file.
        if self._index.get(tenant, sha):
            return
        if begun is None:
            raise errors.NotFound(f"no part of file {sha} has been uploaded", field="sha256")
        objects = _all_parts(begun)
        whole = StoredFile(size=begun.size, references=0, objects=objects)
        verified = self.compute_digest(tenant, whole) == sha
        ended = self._index.end_upload(tenant, sha, objects, verified=verified)
        if not ended and not self._index.get(tenant, sha):
            detail = "the parts were deleted or replaced during verification; request the list of missing files again"
            raise errors.Conflict(detail, field="part")
        if ended and not verified:
            detail = (
                f"the SHA-256 of the uploaded parts is not {sha}; the file may have changed during the upload."
                " Upload it again"
            )
            raise errors.InvalidRequest(detail, field="body")

    def _add(self, tenant: str, rows: Mapping[str, tuple[str, bytes]]) -> list[str]:
        """Write files, and return the SHA-256 of each new file.

        `rows` maps a SHA-256 to an object name and its bytes.
        """
        if not rows:
            return []
        self._write(tenant, dict(rows.values()))
        how = self._index.add(tenant, [(sha, len(data), name) for sha, (name, data) in rows.items()])
        if isinstance(how, CapExceeded):
            self.blobs.delete([(tenant, name) for name, _ in rows.values()])
            raise _over_limit(tenant, how)
        if "gone" in how:
            raise errors.Unavailable("the upload took over an hour; send it again")
        return [sha for sha, each in zip(rows, how, strict=True) if each == "new"]

    def add_part(self, tenant: str, sha: str, size: int, number: int, data: bytes) -> None:
        name = files.new_object()
        self._write(tenant, {name: data})
        how = self._index.add_part(tenant, sha, size, number, name)
        if isinstance(how, CapExceeded):
            self.blobs.delete([(tenant, name)])
            raise _over_limit(tenant, how)
        if how == "size":
            self.blobs.delete([(tenant, name)])
            raise errors.Conflict(f"the upload of {sha} was started with another size", field="size")
        if how == "gone":
            raise errors.Unavailable("the upload took over an hour; send it again")

    def _write(self, tenant: str, objects: Mapping[str, bytes]) -> None:
        self._index.begin(tenant, list(objects))
        self.blobs.write(tenant, objects)

    def compute_digest(self, tenant: str, file: StoredFile) -> str:
        digest = hashlib.sha256()
        try:
            for piece in self._pieces(tenant, file, 0, file.size):
                digest.update(piece)
        except Lost:
            return ""
        return digest.hexdigest()

    # -- downloads -----------------------------------------------------------------------------------------------------

    def find(self, tenant: str, sha: str) -> StoredFile:
        """Return a tenant's file. Raise NotFound if this tenant does not have it, even if another tenant does."""
        file = self._index.get(tenant, sha)
        if file is None:
            raise errors.NotFound(f"file {sha} does not exist", field="sha256")
        return file

    def open(self, tenant: str, sha: str, asked: str) -> Download:
        """Open a file, or the byte range that a Range header requests. Raise InvalidRange if the range is invalid."""
        file = self.find(tenant, sha)
        part = parse_range(asked, file.size)
        return Download(size=file.size, span=part, pieces=self.read(tenant, sha, file, *(part or (0, file.size))))

    def read(self, tenant: str, sha: str, file: StoredFile, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to `end` (exclusive) of a file. Raise Broken if the store has lost the bytes."""
        pieces = self._pieces(tenant, file, start, end)
        try:
            first = next(pieces, b"")
        except Lost:
            raise self._record_loss(tenant, sha, file) from None
        return _prepend(first, pieces)

    def get_bundle(self, tenant: str, shas: Sequence[str]) -> bytes:
        """Return a bundle of the first files that fit into it, at least one.

        Raise NotFound or Broken if a file does not exist or is lost, and TooLarge if the first file does not fit.
        """
        packed: list[tuple[str, bytes]] = []
        total = 0
        for sha, file in zip(shas, self._index.several(tenant, shas), strict=True):
            if file is None:
                raise errors.NotFound(f"file {sha} does not exist", field="hashes")
            if total + file.size > bundles.MAX_BYTES:
                break
            packed.append((sha, b"".join(self.read(tenant, sha, file, 0, file.size))))
            total += file.size
        if not packed:
            raise errors.TooLarge(
                f"file {shas[0]} is too large for a bundle; download it with GET /api/files/{shas[0]}", field="hashes"
            )
        return bundles.pack(packed)

    def _pieces(self, tenant: str, file: StoredFile, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            number, offset = divmod(start, PART_BYTES)
            till = min(offset + _PIECE, PART_BYTES, offset + end - start)
            yield self.blobs.read(tenant, file.objects[number], offset, till)
            start += till - offset

    def _record_loss(self, tenant: str, sha: str, file: StoredFile) -> errors.Broken:
        self._index.lose(tenant, sha, file.objects)
        detail = f"the artifact store has lost the contents of file {sha}"
        return errors.Broken(
            f"{detail}; upload the folder that contains it with `cluster artifact put`", field="sha256"
        )


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Parse a Range header. Return the first byte and the end (exclusive), or None to send the whole file.

    Raise InvalidRange if the range starts beyond the end of the file.
    """
    asked = _RANGE.fullmatch(header.strip())
    if asked is None:
        return None
    start, last = int(asked[1]), int(asked[2] or size)
    if last < start:
        return None
    if start >= size:
        raise errors.InvalidRange(f"the range starts at byte {start}, but the file has {size} bytes", field="Range")
    return start, min(last + 1, size)


def _prepend(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _all_parts(begun: Upload) -> tuple[str, ...]:
    """Return the stored objects of all parts of a file, in order. Raise Conflict if parts are missing."""
    count = _count(begun.size)
    lacking = [number for number in range(count) if number not in begun.objects]
    if lacking:
        raise errors.Conflict(
            f"{len(lacking)} of {count} parts are missing; the first missing part is {lacking[0]}", field="part"
        )
    return tuple(begun.objects[number] for number in range(count))


def _count(size: int) -> int:
    """Return the number of parts of a file of this size."""
    return max(1, -(-size // PART_BYTES))


def _check_part(size: int, number: int, length: int) -> None:
    if size > manifest.MAX_FILE:
        raise errors.TooLarge(f"the file has more than {manifest.MAX_FILE} bytes", field="size")
    if number >= _count(size):
        raise errors.InvalidRequest(
            f"part {number} does not exist; a file of {size} bytes has parts 0 to {_count(size) - 1}", field="part"
        )
    wanted = min(PART_BYTES, size - number * PART_BYTES)
    if length != wanted:
        detail = f"part {number} of a file of {size} bytes must have {wanted} bytes, got {length}; upload it again"
        raise errors.InvalidRequest(detail, field="body")


def parse_body(parse: Callable[[bytes], Body], body: bytes) -> Body:
    """Parse a request body. Raise InvalidRequest or TooLarge if the body is invalid."""
    try:
        return parse(body)
    except TooLarge as error:
        raise errors.TooLarge(str(error), field="body") from None
    except MalformedText as error:
        raise errors.InvalidRequest(str(error), field="body") from None


def _over_limit(tenant: str, limit: CapExceeded) -> errors.OverLimit:
    detail = (
        f"tenant {tenant} has uploaded {limit.loose} bytes that no artifact contains, and max_stored_bytes is"
        f" {limit.most}. They are deleted after one day. Upload less, or ask an administrator to raise the cap"
    )
    return errors.OverLimit(detail, field="max_stored_bytes", seconds=3600)
