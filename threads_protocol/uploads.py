"""Upload of a tree. Only files that the cluster lacks are sent, in bundles and parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from threads_protocol import bundles
from threads_protocol.folders import Tree
from threads_protocol.manifest import Entry

#: Maximum number of hashes per request.
#: Maximum size in bytes of a file in a bundle.
MAX_HASHES, SMALL = 10_000, 1 << 20
#: Additional seconds for storing a request body.
#: Minimum speed of verifying a file in bytes per second.
STORING_SECONDS, _VERIFY_RATE = 60.0, 50 << 20
#: Maximum number of requests for the list of missing files in one upload.
ATTEMPTS = 3
#: Errors, as (status, field), after which an upload requests the list of missing files again.
#:
#: Garbage collection can delete files (409 body), some parts of a file (409 part) or all of its parts (404 sha256).
#: If another upload of the same file sent a corrupt part (422 body), the server deletes all parts of the file.
GONE = frozenset({(409, "body"), (409, "part"), (404, "sha256"), (422, "body")})


class Unsendable(Exception):
    """A file cannot be read, or it changed after its folder was read. The message contains the file's path."""


class UploadApi(Protocol):
    """API calls for uploads. `seconds` is the time that a call can take in addition to the usual timeout."""

    def missing(self, hashes: Sequence[str]) -> dict[str, Any]: ...

    def send(self, method: str, path: str, body: bytes | None, seconds: float, **query: int) -> object: ...


class Upload:
    """Upload of the files that the cluster lacks."""

    def __init__(self, tree: Tree, calls: UploadApi) -> None:
        self._tree, self._calls = tree, calls
        self._bounds: dict[str, Any] = {}
        #: Numbers of the parts that are already uploaded, keyed by the hash of the file.
        self._parts: dict[str, list[int]] = {}
        files = tree.files
        self.entries = [files[sha] for sha in self._missing(list(files)) if sha in files]

    def _missing(self, hashes: list[str]) -> Iterator[str]:
        for at in range(0, len(hashes), MAX_HASHES):
            self._bounds = self._calls.missing(hashes[at : at + MAX_HASHES])
            self._parts |= self._bounds["parts"]
            yield from self._bounds["missing"]

    def send(self) -> Iterator[tuple[list[Entry], int]]:
        """Send the missing files. Yield the files of each request and the number of stored bytes. Raises Unsendable."""
        if not self.entries:
            return
        bounds = self._bounds
        small = [entry for entry in self.entries if entry.size <= min(SMALL, bounds["bundle_bytes"])]
        for bundle in bundles.group(small, bounds["bundle_files"], bounds["bundle_bytes"]):
            body = bundles.pack([(entry.sha, _read_whole(self._tree, entry)) for entry in bundle])
            self._calls.send("PUT", "file-bundle", body, STORING_SECONDS)
            yield bundle, sum(entry.size for entry in bundle)
        for entry in self.entries:
            if entry.size > min(SMALL, bounds["bundle_bytes"]):
                yield from (([entry], size) for size in self._send_parts(entry, bounds["part_bytes"]))

    def _send_parts(self, entry: Entry, part_bytes: int) -> Iterator[int]:
        for number, start in enumerate(range(0, entry.size, part_bytes)):
            size = min(part_bytes, entry.size - start)
            if number not in self._parts.get(entry.sha, ()):
                data = _read(self._tree, entry, start, size)
                if len(data) != size:
                    raise _changed_error(entry)
                path = f"files/{entry.sha}/parts/{number}"
                self._calls.send("PUT", path, data, STORING_SECONDS, size=entry.size)
            yield size
        if entry.size > part_bytes:
            seconds = STORING_SECONDS + entry.size / _VERIFY_RATE
            self._calls.send("POST", f"files/{entry.sha}/complete", None, seconds)


def _read_whole(tree: Tree, entry: Entry) -> bytes:
    data = _read(tree, entry, 0, entry.size + 1)
    if hashlib.sha256(data).hexdigest() != entry.sha:
        raise _changed_error(entry)
    return data


def _read(tree: Tree, entry: Entry, start: int, size: int) -> bytes:
    try:
        return tree.read(entry, start, size)
    except OSError as error:
        raise Unsendable(f"cannot read {entry.path}: {error.strerror}") from None


def _changed_error(entry: Entry) -> Unsendable:
    return Unsendable(f"{entry.path} changed during the upload; run the command again")
