"""Files of jobs on a runner, by SHA-256: fetched once, verified whenever one is used, the oldest dropped first."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

log = logging.getLogger(__name__)

#: Bytes of one read.
_CHUNK = 1 << 20


class DamagedFile(Exception):
    """A file of the cache has other bytes than it was fetched with; it is gone now."""


class FileCache:
    """Files below `folder`, of at most `capacity` bytes together. Thread-safe.

    What fetches gets the hashes that are missing and what to pass each file's bytes to.
    """

    def __init__(self, folder: Path, capacity: int) -> None:
        self._folder, self._capacity = folder, capacity
        self._lock = threading.Lock()
        #: Only one fetches at a time: another job often needs the same files.
        self._fetching = threading.Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        #: Bytes of each file, the longest unused first.
        self._sizes = self._load_existing()

    def _load_existing(self) -> dict[str, int]:
        """Return what an earlier process left, and remove what it had not finished."""
        found = [(path, path.stat()) for path in self._folder.iterdir()]
        for path, _ in found:
            if path.suffix:
                path.unlink()
        whole = sorted(((path, of) for path, of in found if not path.suffix), key=lambda pair: pair[1].st_atime)
        return {path.name: of.st_size for path, of in whole}

    def missing(self, shas: Sequence[str]) -> list[str]:
        """Return those that are not here; the others count as used now."""
        with self._lock:
            for sha in shas:
                if sha in self._sizes:
                    self._sizes[sha] = self._sizes.pop(sha)
            return [sha for sha in dict.fromkeys(shas) if sha not in self._sizes]

    def have(
        self, shas: Sequence[str], fetch: Callable[[list[str], Callable[[str, Iterator[bytes]], None]], None]
    ) -> None:
        """Have all of them here; errors of `fetch`, and OSError, are the caller's."""
        with self._fetching:
            wanted = self.missing(shas)
            if wanted:
                fetch(wanted, self._write)
            self._shrink(keep=set(shas))
            if wanted and (needed := self._bytes(shas)) > self._capacity:
                log.warning(
                    "the files of one job have %d bytes, and CACHE_BYTES is %d: other jobs' files are fetched again",
                    needed,
                    self._capacity,
                )

    def _bytes(self, shas: Sequence[str]) -> int:
        with self._lock:
            return sum(self._sizes.get(sha, 0) for sha in set(shas))

    def _write(self, sha: str, content: Iterator[bytes]) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._folder / f"{sha}.part"
        try:
            with part.open("wb") as stream:
                for piece in content:
                    stream.write(piece)
                size = stream.tell()
            part.rename(self._folder / sha)
        finally:
            part.unlink(missing_ok=True)
        with self._lock:
            self._sizes[sha] = size

    def _shrink(self, keep: set[str]) -> None:
        with self._lock:
            total = sum(self._sizes.values())
            for sha in [sha for sha in self._sizes if sha not in keep]:
                if total <= self._capacity:
                    return
                total -= self._sizes.pop(sha)
                (self._folder / sha).unlink(missing_ok=True)

    def evict_until(self, is_enough: Callable[[], bool]) -> None:
        """Remove files, the longest unused first, until there is enough space. A program that needs one fetches it."""
        with self._lock:
            while self._sizes and not is_enough():
                sha = next(iter(self._sizes))
                del self._sizes[sha]
                (self._folder / sha).unlink(missing_ok=True)

    def path(self, sha: str) -> Path:
        """Return where a file is, if it is here."""
        return self._folder / sha

    def copy(self, sha: str, to: Path) -> None:
        """Copy a file that is here; FileNotFoundError where it is not. Raises Damaged.

        A program owns its copy: a hard link would let it change what others get.
        """
        digest = hashlib.sha256()
        try:
            source = (self._folder / sha).open("rb")
        except FileNotFoundError:  # somebody else removed it
            self.drop(sha)
            raise
        with source, to.open("xb") as target:
            while piece := source.read(_CHUNK):
                digest.update(piece)
                target.write(piece)
        if digest.hexdigest() != sha:
            self.drop(sha)
            to.unlink()
            raise DamagedFile(sha)

    def drop(self, sha: str) -> None:
        with self._lock, contextlib.suppress(KeyError):
            del self._sizes[sha]
            (self._folder / sha).unlink(missing_ok=True)


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
