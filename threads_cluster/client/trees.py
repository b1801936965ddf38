"""Folders as manifests: which files of a folder are put, and where those of a manifest may be written.

The form of a manifest is that of docs/artifacts.md: JSON lines, one path a line, sorted by its bytes.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from threads_cluster.errors import BadArgument, ClientError
from threads_cluster.terminal import visible
from threads_protocol import folders, manifest
from threads_protocol.errors import MalformedText
from threads_protocol.folders import Tree
from threads_protocol.manifest import MAX_FILE, Entry

#: Left out of every folder, as lines of .gitignore; the folder's .clusterignore adds to them, and may take back.
EXCLUDED = (".git", "__pycache__", ".venv", "node_modules", ".env", ".cluster", ".cluster-*.part")
IGNORE_FILE = ".clusterignore"
#: A folder whose own file of this name says no more than this is left out of those around it.
_ALL = b"*"
_PIECE = 1 << 20


class UnsafeArtifact(ClientError):
    """A manifest that is no manifest, or leads out of its folder; nothing was written."""


# -- a folder that is put ----------------------------------------------------------------------------------------------


def scan(path: Path, exclude: Sequence[str] = ()) -> Tree:
    """Read a folder, or one file. BadArgument for what cannot be put, such as a link that leads out of the folder."""
    if path.is_file() and not path.is_symlink():
        return Tree(root=path.parent, entries=[_file(path.parent, path.name)])
    if not path.is_dir():
        raise BadArgument(f"{visible(str(path))} is no folder and no file")
    try:
        entries = sorted(_walk(path, _ignoring(path, exclude)), key=lambda entry: entry.path.encode())
    except UnicodeEncodeError as error:
        raise BadArgument(f"the name {visible(ascii(error.object), 200)} is not UTF-8; rename or exclude it") from None
    except OSError as error:
        raise BadArgument(f"{visible(str(error.filename))} cannot be read: {error.strerror}") from None
    ends = folders.link_ends(entries)
    for entry in entries:
        if entry.kind == "l" and ends[entry.path] is None:
            where = f"the link {visible(entry.path)} leads to {visible(entry.target)}"
            raise BadArgument(f"{where}, which is not put with it; exclude it with --exclude, or replace it by a copy")
    return Tree(root=path, entries=entries)


def listed(root: Path, paths: Iterable[str]) -> Tree:
    """Read these files of a folder. BadArgument for one that cannot be read."""
    return Tree(root=root, entries=sorted((_file(root, path) for path in paths), key=lambda each: each.path.encode()))


def _ignoring(folder: Path, exclude: Sequence[str]) -> Any:
    import pathspec  # 20 ms that other commands need not wait for

    lines = [*EXCLUDED]
    if _leaves_all_out(folder, "."):  # of the folders around it
        lines.append(IGNORE_FILE)
    elif (folder / IGNORE_FILE).is_file():
        lines += (folder / IGNORE_FILE).read_text(errors="replace").splitlines()
    try:
        return pathspec.GitIgnoreSpec.from_lines([*lines, *exclude])
    except (ValueError, re.error) as error:
        raise BadArgument(f"a pattern of {IGNORE_FILE} or --exclude cannot be understood: {error}") from None


def _walk(root: Path, ignored: Any) -> Iterator[Entry]:
    """Yield the entries of a folder, in any order; an empty folder is an entry itself."""
    left = [""]
    while left:
        folder = left.pop()
        rows = ((path, about.st_mode, target) for path, about, target in folders.list_folder(root, folder))
        kept = [(path, mode, target) for path, mode, target in rows if not _is_ignored(ignored, path, mode)]
        if not kept and folder:
            yield Entry(kind="d", path=_sound(folder))
        for path, mode, target in kept:
            path.encode()
            if stat.S_ISDIR(mode):
                if not _leaves_all_out(root, path):
                    left.append(path)
            elif stat.S_ISLNK(mode):
                yield Entry(kind="l", path=_sound(path), target=target)
            elif stat.S_ISREG(mode):
                yield _file(root, path)
            else:
                raise BadArgument(f"{visible(path)} is no file, folder or link; exclude it with --exclude")


def _leaves_all_out(root: Path, folder: str) -> bool:
    """Tell whether a folder says that it is never part of one that is put, as `leave_out` has it say."""
    try:
        return (root / folder / IGNORE_FILE).read_bytes()[: len(_ALL) + 1].strip() == _ALL
    except OSError:
        return False


def leave_out(folder: Path) -> None:
    """Have a folder, where it is there, left out when one around it is put."""
    with suppress(OSError):
        (folder / IGNORE_FILE).write_bytes(_ALL + b"\n")


def _is_ignored(ignored: Any, path: str, mode: int) -> bool:
    return bool(ignored.match_file(f"{path}/" if stat.S_ISDIR(mode) else path))


def opened(root: Path, path: str) -> BinaryIO:
    """Open a file below a folder, and nothing else in its place. BadArgument when it cannot be read."""
    try:
        return folders.open_file(root, path)
    except OSError as error:
        raise BadArgument(f"{visible(path)} cannot be read: {error.strerror}") from None


def _file(root: Path, path: str) -> Entry:
    made, size = hashlib.sha256(), 0
    with opened(root, path) as file:
        about = os.fstat(file.fileno())
        while size <= MAX_FILE and (piece := _piece(file, path) if about.st_size <= MAX_FILE else b""):
            made.update(piece)
            size += len(piece)
    if max(about.st_size, size) > MAX_FILE:
        raise BadArgument(f"{visible(path)} has over {MAX_FILE >> 30} GiB; exclude it with --exclude, or divide it")
    return Entry(kind="x" if about.st_mode & 0o100 else "f", path=_sound(path), size=size, sha=made.hexdigest())


def _piece(file: BinaryIO, path: str) -> bytes:
    try:
        return file.read(_PIECE)
    except OSError as error:
        raise BadArgument(f"{visible(path)} cannot be read: {error.strerror}") from None


def _sound(path: str) -> str:
    try:
        manifest.check_path(path)
    except ValueError as error:
        raise BadArgument(f"{error}; rename or exclude it") from None
    return path


# -- a manifest that is fetched ----------------------------------------------------------------------------------------


def parsed(text: bytes) -> list[Entry]:
    """Return the entries of a manifest. UnsafeArtifact when it is none, or a path of it leads elsewhere."""
    if not text.startswith(f"{manifest.HEAD}\n".encode()):
        raise UnsafeArtifact("the manifest of this artifact is of another version; update the client")
    try:
        return manifest.entries(text)
    except MalformedText as error:
        raise UnsafeArtifact(f"the manifest of this artifact is wrong: {error}") from None


def colliding(entries: Iterable[Entry]) -> tuple[str, str] | None:
    """Return two paths, or beginnings of paths, that differ in the case or the form of letters alone; None without."""
    # In this order those with equal beginnings are neighbours, however these are written.
    rows = sorted((_folded(entry.path), entry.path) for entry in entries)
    for (one, path), (other, after) in pairwise(rows):
        folded = zip(one.split("\0"), other.split("\0"), strict=False)
        names = zip(path.split("/"), after.split("/"), strict=False)
        for length, ((mine, its), (name, its_name)) in enumerate(zip(folded, names, strict=False), 1):
            if mine != its:
                break
            if name != its_name:
                return "/".join(path.split("/")[:length]), "/".join(after.split("/")[:length])
    return None


def _folded(path: str) -> str:
    """Return a path as file systems compare it that know neither case nor the form of a letter."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold()).replace("/", "\0")


def led_to(link: Entry) -> str:
    """Return the path that a link leads to, relative to the tree; it begins with .. when that is outside."""
    if posixpath.isabs(link.target):
        return ".."
    return posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))


def by_hash(entries: Sequence[Entry]) -> Mapping[str, list[Entry]]:
    """Return the files of a tree by their SHA-256."""
    files: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.is_file:
            files.setdefault(entry.sha, []).append(entry)
    return files
