"""Cache of job files on a runner, keyed by SHA-256. Copies are verified, and files are evicted by least recent use."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

log = logging.getLogger(__name__)

#: Chunk size of reads in bytes.
_CHUNK = 1 << 20


class DamagedFile(Exception):
    """A cached file does not match its hash. The file has been deleted."""


class FileCache:
    """Cache of files in `folder`, limited to `capacity` bytes. Thread-safe.

    The `fetch` functions receive the missing hashes and a function that stores the content of each file.
    """

    def __init__(self, folder: Path, capacity: int) -> None:
        self._folder, self._capacity = folder, capacity
        self._lock = threading.Lock()
        #: Lock that lets only one thread fetch files at a time, because jobs often share files.
        self._fetching = threading.Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        #: Size in bytes of each cached file, least recently used first.
        self._sizes = self._load_existing()
        #: Hashes of files that an earlier process cached and that this process has not verified.
        self._unverified = set(self._sizes)

    def _load_existing(self) -> dict[str, int]:
        """Return the sizes of the files that an earlier process cached, and delete incomplete files."""
        found = [(path, path.stat()) for path in self._folder.iterdir()]
        for path, _ in found:
            if path.suffix:
                path.unlink()
        whole = sorted(((path, of) for path, of in found if not path.suffix), key=lambda pair: pair[1].st_atime)
        return {path.name: of.st_size for path, of in whole}

    def missing(self, shas: Sequence[str]) -> list[str]:
        """Return the hashes of files that are not cached, and mark the cached ones as used."""
        with self._lock:
            for sha in shas:
                if sha in self._sizes:
                    self._sizes[sha] = self._sizes.pop(sha)
            return [sha for sha in dict.fromkeys(shas) if sha not in self._sizes]

    def have(
        self, shas: Sequence[str], fetch: Callable[[list[str], Callable[[str, Iterator[bytes]], None]], None]
    ) -> None:
        """Fetch all files that are not cached yet. Raises OSError and the errors of `fetch`."""
        with self._fetching:
            wanted = self.missing(shas)
            if wanted:
                fetch(wanted, self._write)
            self._shrink(keep=set(shas))
            if wanted and (needed := self._bytes(shas)) > self._capacity:
                log.warning(
                    "the files of one job have %d bytes, but CACHE_BYTES is %d, so other jobs' files are evicted",
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
            self._unverified.discard(sha)

    def _shrink(self, keep: set[str]) -> None:
        with self._lock:
            total = sum(self._sizes.values())
            for sha in [sha for sha in self._sizes if sha not in keep]:
                if total <= self._capacity:
                    return
                total -= self._sizes.pop(sha)
                (self._folder / sha).unlink(missing_ok=True)

    def evict_until(self, is_enough: Callable[[], bool]) -> None:
        """Delete cached files until `is_enough` returns True, starting with the least recently used file."""
        with self._lock:
            while self._sizes and not is_enough():
                sha = next(iter(self._sizes))
                del self._sizes[sha]
                (self._folder / sha).unlink(missing_ok=True)

    def path(self, sha: str) -> Path:
        """Return the path of a cached file by its hash."""
        return self._folder / sha

    def copy(self, sha: str, to: Path) -> None:
        """Copy a cached file. Raises FileNotFoundError if the file is not cached, and DamagedFile if its content
        changed.

        Each program gets a copy, because a hard link would let a program change the files of others.
        """
        digest = hashlib.sha256()
        try:
            source = (self._folder / sha).open("rb")
        except FileNotFoundError:  # Another process has deleted the file
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

    def open(self, sha: str) -> int:
        """Return a descriptor for reading a cached file, which remains valid if the file is deleted.

        A file of an earlier process is verified once. Raises FileNotFoundError if the file is not cached, and
        DamagedFile.
        """
        try:
            descriptor = os.open(self._folder / sha, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # Another process has deleted the file
            self.drop(sha)
            raise
        if sha in self._unverified and not self._verify(sha, descriptor):
            os.close(descriptor)
            self.drop(sha)
            raise DamagedFile(sha)
        return descriptor

    def _verify(self, sha: str, descriptor: int) -> bool:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            is_whole = hashlib.file_digest(file, "sha256").hexdigest() == sha
        os.lseek(descriptor, 0, os.SEEK_SET)
        if is_whole:
            self._unverified.discard(sha)
        return is_whole

    def drop(self, sha: str) -> None:
        with self._lock, contextlib.suppress(KeyError):
            del self._sizes[sha]
            (self._folder / sha).unlink(missing_ok=True)


def free_bytes(folder: Path) -> int:
    """Return the disk space in bytes that this user can still write to."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
