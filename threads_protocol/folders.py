"""Folders as trees of entries: what lies in one is read without following a link, whoever put it there meanwhile."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
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
    """Entries of a folder, without the bytes of its files."""

    root: Path
    entries: list[Entry] = field(default_factory=list)
    #: Paths that no manifest has: links that lead out, sockets and the like, names that are not UTF-8.
    left_out: list[str] = field(default_factory=list)

    @property
    def manifest(self) -> bytes:
        """The manifest; its SHA-256 is the artifact's id."""
        return manifest.serialize(self.entries)

    @property
    def files(self) -> dict[str, Entry]:
        """One entry for each SHA-256."""
        return {entry.sha: entry for entry in self.entries if entry.is_file}


def list_folder(root: Path, folder: str) -> list[tuple[str, os.stat_result, str]]:
    """Return path, facts and, of a link, target of what lies in a folder below `root`. OSError."""
    rows = []
    with _folder(root, folder) as opened_folder:
        for name in sorted(os.listdir(opened_folder)):  # noqa: PTH208 - no Path is a folder that is open
            about = os.stat(name, dir_fd=opened_folder, follow_symlinks=False)
            target = os.readlink(name, dir_fd=opened_folder) if stat.S_ISLNK(about.st_mode) else ""
            rows.append((f"{folder}/{name}" if folder else name, about, target))
    return rows


def open_file(root: Path, path: str) -> BinaryIO:
    """Open a file below a folder, and nothing else in its place, such as a pipe. OSError."""
    folder, _, name = path.rpartition("/")
    with _folder(root, folder) as parent:
        number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.fdopen(number, "rb")
    os.close(number)
    raise OSError(errno.EINVAL, "it is not a file any more", path)


@contextmanager
def _folder(root: Path, folder: str) -> Iterator[int]:
    """Open a folder below another, and no link on the way. OSError names the whole path."""
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


def link_ends(entries: Iterable[Entry]) -> dict[str, str | None]:
    """Return where each link ends; None for one that leads outside, or nowhere."""
    targets = {entry.path: entry.target for entry in entries if entry.kind == "l"}
    links = Links(targets, sorted(entry.path for entry in entries))
    return {path: links.end(path) for path in targets}


def with_sound_links(entries: list[Entry]) -> list[Entry]:
    """Return the entries without links that lead to none of them, nor to a folder that has some."""
    while True:
        ends = link_ends(entries)
        kept = [entry for entry in entries if entry.kind != "l" or ends[entry.path] is not None]
        if len(kept) == len(entries):
            return kept
        entries = kept
