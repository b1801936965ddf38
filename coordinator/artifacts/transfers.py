"""Upload and download files in parts that can be repeated. Each file is verified by its SHA-256."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from coordinator.artifacts.blobs import Blobs, Lost
from jobs import errors
from jobs.store import files
from jobs.store.files import PART_BYTES, Files, StoredFile, TooMuch, Upload
from threads_protocol import bundles, manifest
from threads_protocol.errors import MalformedText, TooLarge

Body = TypeVar("Body")

#: Bytes per read for a download, and to verify a file.
_PIECE = 1 << 20
_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Files of a request that the tenant has not uploaded."""

    missing: list[str]
    #: Numbers of the stored parts of files whose upload has started.
    parts: dict[str, list[int]]


@dataclass(frozen=True, kw_only=True)
class Opened:
    """File to download."""

    size: int
    #: First byte and end of the requested range, or None for the whole file.
    span: tuple[int, int] | None
    pieces: Iterator[bytes]


class Transfers:
    """Files of tenants, in one index and one artifact store."""

    def __init__(self, index: Files, blobs: Blobs) -> None:
        self._index = index
        self.blobs = blobs

    # -- up ---------------------------------------------------------------------------------------------------------

    def wanted(self, tenant: str, shas: Sequence[str]) -> Wanted:
        """Return the missing files. Files that exist are kept for at least one day."""
        missing = self._index.missing(tenant, shas)
        return Wanted(missing=missing, parts=self._index.uploads(tenant, missing))

    def put_bundle(self, tenant: str, body: bytes) -> tuple[int, int]:
        """Store the files of a bundle, and return the number and the bytes of the new ones."""
        sent = parsed(bundles.unpack, body)
        lacked = set(self._index.missing(tenant, list(sent)))
        rows = {sha: (files.new_object(), data) for sha, data in sent.items() if sha in lacked}
        added = self._add(tenant, rows)
        return len(added), sum(len(rows[sha][1]) for sha in added)

    def put_part(self, tenant: str, sha: str, size: int, number: int, data: bytes) -> list[int]:
        """Store one part of a file, or a whole small file, and return the numbers of the missing parts."""
        _check_part(size, number, len(data))
        if size <= PART_BYTES:
            if hashlib.sha256(data).hexdigest() != sha:
                raise errors.InvalidRequest(f"the file has another SHA-256 than {sha}; send it again", field="body")
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
        """Verify the parts of a file and store them as the file. Do nothing if the file is already stored.

        Raises Conflict if parts are missing. If their bytes have another SHA-256, deletes the parts and raises
        InvalidRequest.
        """
        begun = self._index.upload(tenant, sha)
        # Read after the parts: another upload of the same file may have just stored it.
        if self._index.get(tenant, sha):
            return
        if begun is None:
            raise errors.NotFound(f"no part of the file {sha} was uploaded", field="sha256")
        objects = _all_parts(begun)
        whole = StoredFile(size=begun.size, references=0, objects=objects)
        verified = self.compute_digest(tenant, whole) == sha
        ended = self._index.end_upload(tenant, sha, objects, verified=verified)
        if not ended and not self._index.get(tenant, sha):
            detail = "the parts were deleted or replaced during verification; ask again which files are missing"
            raise errors.Conflict(detail, field="part")
        if ended and not verified:
            detail = (
                f"the parts do not make a file with the SHA-256 {sha}; did it change while it was sent? Send it anew"
            )
            raise errors.InvalidRequest(detail, field="body")

    def _add(self, tenant: str, rows: Mapping[str, tuple[str, bytes]]) -> list[str]:
        """Write files, passed as (object, bytes) by SHA-256, and return the new ones."""
        if not rows:
            return []
        self._write(tenant, dict(rows.values()))
        how = self._index.add(tenant, [(sha, len(data), name) for sha, (name, data) in rows.items()])
        if isinstance(how, TooMuch):
            self.blobs.delete([(tenant, name) for name, _ in rows.values()])
            raise _over(tenant, how)
        if "gone" in how:
            raise errors.Unavailable("the upload took over an hour; send it again")
        return [sha for sha, each in zip(rows, how, strict=True) if each == "new"]

    def add_part(self, tenant: str, sha: str, size: int, number: int, data: bytes) -> None:
        name = files.new_object()
        self._write(tenant, {name: data})
        how = self._index.add_part(tenant, sha, size, number, name)
        if isinstance(how, TooMuch):
            self.blobs.delete([(tenant, name)])
            raise _over(tenant, how)
        if how == "size":
            self.blobs.delete([(tenant, name)])
            raise errors.Conflict(f"the upload of {sha} was begun with another size", field="size")
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

    # -- down -------------------------------------------------------------------------------------------------------

    def find(self, tenant: str, sha: str) -> StoredFile:
        """Return a file. Raise NotFound if this tenant does not have it, even if another one does."""
        file = self._index.get(tenant, sha)
        if file is None:
            raise errors.NotFound(f"there is no file {sha}", field="sha256")
        return file

    def open(self, tenant: str, sha: str, asked: str) -> Opened:
        """Return a file, or the range in a Range header. Raise the errors of `find`, `span` and `read`."""
        file = self.find(tenant, sha)
        part = span(asked, file.size)
        return Opened(size=file.size, span=part, pieces=self.read(tenant, sha, file, *(part or (0, file.size))))

    def read(self, tenant: str, sha: str, file: StoredFile, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes start..end-1 of a file. If the store has lost them, record that and raise Broken."""
        pieces = self._pieces(tenant, file, start, end)
        try:
            first = next(pieces, b"")
        except Lost:
            raise self._lost(tenant, sha, file) from None
        return _joined(first, pieces)

    def get_bundle(self, tenant: str, shas: Sequence[str]) -> bytes:
        """Return as many of the first of these files as fit into one bundle, at least one.

        NotFound, Broken, and TooLarge where the first does not fit.
        """
        packed: list[tuple[str, bytes]] = []
        total = 0
        for sha, file in zip(shas, self._index.several(tenant, shas), strict=True):
            if file is None:
                raise errors.NotFound(f"there is no file {sha}", field="hashes")
            if total + file.size > bundles.MAX_BYTES:
                break
            packed.append((sha, b"".join(self.read(tenant, sha, file, 0, file.size))))
            total += file.size
        if not packed:
            raise errors.TooLarge(
                f"the file {shas[0]} is too large for a bundle; GET /api/files/{shas[0]}", field="hashes"
            )
        return bundles.pack(packed)

    def _pieces(self, tenant: str, file: StoredFile, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            number, offset = divmod(start, PART_BYTES)
            till = min(offset + _PIECE, PART_BYTES, offset + end - start)
            yield self.blobs.read(tenant, file.objects[number], offset, till)
            start += till - offset

    def _lost(self, tenant: str, sha: str, file: StoredFile) -> errors.Broken:
        self._index.lose(tenant, sha, file.objects)
        detail = f"the artifact store has lost the bytes of the file {sha}"
        return errors.Broken(f"{detail}; put the folder that has it once more, which uploads it again", field="sha256")


def span(header: str, size: int) -> tuple[int, int] | None:
    """Return the first byte and the end that a Range header asks for; None for all, as for ranges of another form.

    InvalidRange when nothing of the file is in it.
    """
    asked = _RANGE.fullmatch(header.strip())
    if asked is None:
        return None
    start, last = int(asked[1]), int(asked[2] or size)
    if last < start:
        return None
    if start >= size:
        raise errors.InvalidRange(f"the file has {size} bytes, and byte {start} was asked for", field="Range")
    return start, min(last + 1, size)


def _joined(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _all_parts(begun: Upload) -> tuple[str, ...]:
    """Return the objects of all parts in order. Raise Conflict if parts are missing."""
    count = _count(begun.size)
    lacking = [number for number in range(count) if number not in begun.objects]
    if lacking:
        raise errors.Conflict(f"{len(lacking)} of {count} parts are missing, the first is {lacking[0]}", field="part")
    return tuple(begun.objects[number] for number in range(count))


def _count(size: int) -> int:
    """Return the parts of a file of this size."""
    return max(1, -(-size // PART_BYTES))


def _check_part(size: int, number: int, length: int) -> None:
    if size > manifest.MAX_FILE:
        raise errors.TooLarge(f"the file has over {manifest.MAX_FILE} bytes", field="size")
    if number >= _count(size):
        raise errors.InvalidRequest(f"a file of {size} bytes has the parts 0 to {_count(size) - 1}", field="part")
    wanted = min(PART_BYTES, size - number * PART_BYTES)
    if length != wanted:
        detail = f"part {number} of a file of {size} bytes has {wanted} bytes; {length} came; send it again"
        raise errors.InvalidRequest(detail, field="body")


def parsed(parse: Callable[[bytes], Body], body: bytes) -> Body:
    """Return the result of `parse` for a body. Raise InvalidRequest or TooLarge if the body is not valid."""
    try:
        return parse(body)
    except TooLarge as error:
        raise errors.TooLarge(str(error), field="body") from None
    except MalformedText as error:
        raise errors.InvalidRequest(str(error), field="body") from None


def _over(tenant: str, limit: TooMuch) -> errors.OverLimit:
    detail = (
        f"tenant {tenant} has uploaded {limit.loose} bytes that no artifact has, and max_stored_bytes is {limit.most}; "
        "they go after a day. Put less, or have the cap raised"
    )
    return errors.OverLimit(detail, field="max_stored_bytes", seconds=3600)
