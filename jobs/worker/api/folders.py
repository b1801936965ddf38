"""Folders that programs leave: what a manifest can have is read, the rest is left out and named."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from threads_protocol import manifest
from threads_protocol.errors import TooLarge
from threads_protocol.folders import Tree, list_folder, open_file, with_sound_links
from threads_protocol.manifest import Entry

_PIECE = 1 << 20


def scan(root: Path) -> Tree:
    """Read a folder. OSError for what cannot be read; TooLarge for more paths than a manifest may have."""
    entries, left_out = list[Entry](), list[str]()
    for entry, path in _walk(root):
        if entry is None:
            left_out.append(path)
        else:
            entries.append(entry)
        if len(entries) > manifest.MAX_ENTRIES:
            raise TooLarge(f"the folder has over {manifest.MAX_ENTRIES} paths; pack some of them")
    kept = with_sound_links(entries)
    left_out += sorted({entry.path for entry in entries} - {entry.path for entry in kept})
    return Tree(root=root, entries=kept, left_out=left_out)


def _walk(root: Path) -> Iterator[tuple[Entry | None, str]]:
    """Yield what is below a folder, each with its path; None for what no manifest has."""
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
    """Return a file; None if it cannot be read, or if it grows beyond its bound meanwhile."""
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
