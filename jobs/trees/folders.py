"""Folders as trees: what lies in one, without following a link."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from jobs import errors
from jobs.trees import manifest
from jobs.trees.links import Links
from jobs.trees.manifest import Entry

_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Paths of a folder, without their bytes."""

    root: Path
    entries: list[Entry]
    #: Paths that no manifest has: links that lead out, sockets and the like, names that are no UTF-8.
    left_out: list[str]

    @property
    def files(self) -> dict[str, Entry]:
        """One entry for each SHA-256."""
        return {entry.sha: entry for entry in self.entries if entry.is_file}

    def read(self, entry: Entry, start: int, size: int) -> bytes:
        """Return at most `size` bytes of a file from a place on. OSError where it cannot be read."""
        with _opened(self.root, entry.path) as opened:
            opened.seek(start)
            return opened.read(size)


def scan(root: Path) -> Tree:
    """Read a folder. OSError for what cannot be read; TooLarge for more paths than a manifest may have."""
    entries, left_out = list[Entry](), list[str]()
    for entry, path in _walk(root):
        if entry is None:
            left_out.append(path)
        else:
            entries.append(entry)
        if len(entries) > manifest.MAX_ENTRIES:
            raise errors.TooLarge(f"the folder has over {manifest.MAX_ENTRIES} paths; pack some of them", field="body")
    kept = _with_sound_links(entries)
    left_out += sorted({entry.path for entry in entries} - {entry.path for entry in kept})
    return Tree(root=root, entries=kept, left_out=left_out)


def _with_sound_links(entries: list[Entry]) -> list[Entry]:
    """Return the entries without links that lead to none of them, nor to a folder that has some."""
    while True:
        targets = {entry.path: entry.target for entry in entries if entry.kind == "l"}
        links = Links(targets, sorted(entry.path for entry in entries))
        kept = [entry for entry in entries if entry.kind != "l" or links.end(entry.path) is not None]
        if len(kept) == len(entries):
            return kept
        entries = kept


def _walk(root: Path) -> Iterator[tuple[Entry | None, str]]:
    """Yield what is below a folder, each with its path; None for what no manifest has."""
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            listed = _listed(root, folder)
        except PermissionError:
            yield None, ascii(folder)
            continue
        if not listed and folder:
            yield Entry(kind="d", path=folder), folder
        for path, about, target in listed:
            if not _is_sound(path, about, target):
                yield None, ascii(path)
            elif stat.S_ISDIR(about.st_mode):
                folders.append(path)
            elif stat.S_ISLNK(about.st_mode):
                yield Entry(kind="l", path=path, target=target), path
            else:
                yield _file(root, path), path


def _listed(root: Path, folder: str) -> list[tuple[str, os.stat_result, str]]:
    """Return path, facts and, of a link, target of what lies in a folder."""
    rows = []
    with _folder(root, folder) as opened:
        for name in sorted(os.listdir(opened)):  # noqa: PTH208 - no Path is a folder that is open
            about = os.stat(name, dir_fd=opened, follow_symlinks=False)
            target = os.readlink(name, dir_fd=opened) if stat.S_ISLNK(about.st_mode) else ""
            rows.append((f"{folder}/{name}" if folder else name, about, target))
    return rows


def _is_sound(path: str, about: os.stat_result, target: str) -> bool:
    """Return True for a path of a sort, a size and, of a link, a target that a manifest can have."""
    mode = about.st_mode
    try:
        manifest.check_path(path)
        if stat.S_ISLNK(mode):
            manifest.check_target(path, target)
    except ValueError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISLNK(mode) or (stat.S_ISREG(mode) and about.st_size <= manifest.MAX_FILE)


def _file(root: Path, path: str) -> Entry | None:
    """Return a file; None for one that nobody may read, or that grows beyond all bounds meanwhile."""
    made, size = hashlib.sha256(), 0
    try:
        opened = _opened(root, path)
    except PermissionError:
        return None
    with opened:
        mode = os.fstat(opened.fileno()).st_mode
        while piece := opened.read(_PIECE):
            made.update(piece)
            size += len(piece)
            if size > manifest.MAX_FILE:
                return None
    return Entry(kind="x" if mode & 0o100 else "f", path=path, size=size, sha=made.hexdigest())


@contextmanager
def _folder(root: Path, folder: str) -> Iterator[int]:
    """Open a folder below another. A link on the way is not followed, whoever put it there in between. OSError."""
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in folder.split("/") if folder else ():
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened)
            os.close(opened)
            opened = inner
        yield opened
    finally:
        os.close(opened)


def _opened(root: Path, path: str) -> BinaryIO:
    """Open a file below a folder, and nothing else in its place, such as a pipe. OSError."""
    folder, _, name = path.rpartition("/")
    with _folder(root, folder) as parent:
        number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.fdopen(number, "rb")
    os.close(number)
    raise OSError(errno.EINVAL, "it is no file any more", path)
