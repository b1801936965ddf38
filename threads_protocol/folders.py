"""Functions that read folders as trees. They never follow symbolic links, even if the folder changes meanwhile."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from threads_protocol import manifest
from threads_protocol.links import Links
from threads_protocol.manifest import Entry

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(kw_only=True)
class Tree:
    """Entries of a folder and its subfolders, without the contents of files."""

    root: Path
    entries: list[Entry] = field(default_factory=list)
    #: Paths that cannot be uploaded, such as sockets, devices, and links that leave the folder.
    left_out: list[str] = field(default_factory=list)

    @property
    def manifest(self) -> bytes:
        """Return the manifest of the tree. The artifact's ID is the SHA-256 of the manifest."""
        return manifest.serialize(self.entries)

    @property
    def files(self) -> dict[str, Entry]:
        """Return one file for each SHA-256, keyed by SHA-256."""
        return {entry.sha: entry for entry in self.entries if entry.is_file}

    def read(self, entry: Entry, start: int, size: int) -> bytes:
        """Return up to `size` bytes of a file from offset `start` on. Raises OSError."""
        with open_file(self.root, entry.path) as file:
            file.seek(start)
            return file.read(size)


@dataclass(kw_only=True)
class MemoryTree(Tree):
    """Tree whose files are in memory. Its entries can also name files that the cluster has already."""

    root: Path = Path()
    #: Contents of the files, keyed by SHA-256.
    contents: Mapping[str, memoryview] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, Entry]:
        return {sha: entry for sha, entry in super().files.items() if sha in self.contents}

    def read(self, entry: Entry, start: int, size: int) -> bytes:
        return bytes(self.contents[entry.sha][start : start + size])


def list_folder(root: Path, folder: str) -> list[tuple[str, os.stat_result, str]]:
    """Return (path, stat result, link target) for each entry of a folder below `root`. Raises OSError."""
    rows = []
    with _folder(root, folder) as opened_folder:
        for name in sorted(os.listdir(opened_folder)):  # noqa: PTH208 - no Path is a folder that is open
            about = os.stat(name, dir_fd=opened_folder, follow_symlinks=False)
            target = os.readlink(name, dir_fd=opened_folder) if stat.S_ISLNK(about.st_mode) else ""
            rows.append((f"{folder}/{name}" if folder else name, about, target))
    return rows


def open_file(root: Path, path: str) -> BinaryIO:
    """Open a regular file below a folder. Raises OSError if the path is not a regular file, for example a pipe."""
    folder, _, name = path.rpartition("/")
    with _folder(root, folder) as parent:
        number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.fdopen(number, "rb")
    os.close(number)
    raise OSError(errno.EINVAL, "not a regular file", path)


@contextmanager
def _folder(root: Path, folder: str) -> Iterator[int]:
    """Open a folder below `root` without following links. An OSError contains the complete path."""
    opened_folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in folder.split("/") if folder else ():
            try:
                inner = os.open(name, _FOLDER, dir_fd=opened_folder)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(root / folder)) from None
            os.close(opened_folder)
            opened_folder = inner
        yield opened_folder
    finally:
        os.close(opened_folder)


def resolve_links(entries: Iterable[Entry]) -> dict[str, str | None]:
    """Resolve each link to a path in the tree. The result is None for a link that leaves the tree or is broken."""
    targets = {entry.path: entry.target for entry in entries if entry.kind == "l"}
    links = Links(targets, sorted(entry.path for entry in entries))
    return {path: links.resolve(path) for path in targets}


def without_broken_links(entries: list[Entry]) -> list[Entry]:
    """Return the entries of a tree, except for links whose targets are not in the tree."""
    while True:
        ends = resolve_links(entries)
        kept = [entry for entry in entries if entry.kind != "l" or ends[entry.path] is not None]
        if len(kept) == len(entries):
            return kept
        entries = kept
