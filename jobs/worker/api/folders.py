"""Scan of a program's output folder. Paths that a manifest cannot contain are skipped and reported."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from threads_protocol import manifest
from threads_protocol.errors import TooLarge
from threads_protocol.folders import Tree, list_folder, open_file, without_broken_links
from threads_protocol.manifest import Entry

_PIECE = 1 << 20


def scan(root: Path) -> Tree:
    """Scan a folder. Raises OSError if it is not readable, and TooLarge if it contains too many paths."""
    entries, left_out = list[Entry](), list[str]()
    for entry, path in _walk(root):
        if entry is None:
            left_out.append(path)
        else:
            entries.append(entry)
        if len(entries) > manifest.MAX_ENTRIES:
            raise TooLarge(
                f"the folder contains more than {manifest.MAX_ENTRIES} paths; pack some of them into archives"
            )
    kept = without_broken_links(entries)
    left_out += sorted({entry.path for entry in entries} - {entry.path for entry in kept})
    return Tree(root=root, entries=kept, left_out=left_out)


def _walk(root: Path) -> Iterator[tuple[Entry | None, str]]:
    """Yield an entry and its path for everything in a folder. The entry is None if a manifest cannot contain it."""
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            rows = list_folder(root, folder)
        except PermissionError:
            yield None, ascii(folder)
            continue
        if not rows and folder:
            yield Entry(kind="d", path=folder), folder
        for path, about, target in rows:
            if not _is_sound(path, about, target):
                yield None, ascii(path)
            elif stat.S_ISDIR(about.st_mode):
                folders.append(path)
            elif stat.S_ISLNK(about.st_mode):
                yield Entry(kind="l", path=path, target=target), path
            else:
                yield _file(root, path), path


def _is_sound(path: str, about: os.stat_result, target: str) -> bool:
    """Return True if a manifest can contain the path with its type, its size and the target of a link."""
    mode = about.st_mode
    try:
        manifest.check_path(path)
        if stat.S_ISLNK(mode):
            manifest.check_target(path, target)
    except ValueError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISLNK(mode) or (stat.S_ISREG(mode) and about.st_size <= manifest.MAX_FILE)


def _file(root: Path, path: str) -> Entry | None:
    """Return an entry for a file, or None if it is not readable or grows beyond the maximum size during the read."""
    made, size = hashlib.sha256(), 0
    try:
        file = open_file(root, path)
    except PermissionError:
        return None
    with file:
        mode = os.fstat(file.fileno()).st_mode
        while piece := file.read(_PIECE):
            made.update(piece)
            size += len(piece)
            if size > manifest.MAX_FILE:
                return None
    return Entry(kind="x" if mode & 0o100 else "f", path=path, size=size, sha=made.hexdigest())
