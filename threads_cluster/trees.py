"""Folders as manifests: which files of a folder are put, and where those of a manifest may be written.

The form of a manifest is that of docs/artifacts.md: JSON lines, one path a line, sorted by its bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threads_cluster.errors import BadArgument, ClientError
from threads_cluster.terminal import visible

#: Left out of every folder, as lines of .gitignore; the folder's .clusterignore adds to them, and may take back.
EXCLUDED = (".git", "__pycache__", ".venv", "node_modules", ".env")
IGNORE_FILE = ".clusterignore"
HEAD = '{"artifact":1}'
_PIECE = 1 << 20
#: Kind of an entry -> fields of its line.
_FIELDS = {"d": 2, "f": 4, "x": 4, "l": 3}


class UnsafeArtifact(ClientError):
    """A manifest that is no manifest, or leads out of its folder; nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One path of a tree."""

    #: d: an empty folder, f: a file, x: one that may be executed, l: a link.
    kind: str
    path: str
    size: int = 0
    sha: str = ""
    target: str = ""

    @property
    def is_file(self) -> bool:
        return self.kind in "fx"

    @property
    def line(self) -> str:
        """The entry as a line of a manifest."""
        rest: list[Any] = [self.size, self.sha] if self.is_file else [self.target] if self.kind == "l" else []
        return json.dumps([self.kind, self.path, *rest], ensure_ascii=False, separators=(",", ":"))


@dataclass(kw_only=True)
class Tree:
    """Entries in the order of a manifest, and the folder that they were read from."""

    root: Path
    entries: list[Entry] = field(default_factory=list)

    @property
    def manifest(self) -> bytes:
        """The manifest; its SHA-256 is the artifact's id."""
        return "".join(f"{line}\n" for line in (HEAD, *(entry.line for entry in self.entries))).encode()

    @property
    def files(self) -> dict[str, Entry]:
        """One entry for each SHA-256."""
        return {entry.sha: entry for entry in self.entries if entry.is_file}


# -- a folder that is put ----------------------------------------------------------------------------------------------


def scan(path: Path, exclude: Sequence[str] = ()) -> Tree:
    """Read a folder, or one file. BadArgument for what cannot be put, such as a link that leads out of the folder."""
    if path.is_file() and not path.is_symlink():
        return Tree(root=path.parent, entries=[_file(path.parent, path.name, path.stat())])
    if not path.is_dir():
        raise BadArgument(f"{visible(str(path))} is no folder and no file")
    tree = Tree(root=path)
    try:
        tree.entries = sorted(_walk(path, "", _ignoring(path, exclude)), key=lambda entry: entry.path.encode())
    except UnicodeEncodeError as error:
        raise BadArgument(f"the name {visible(ascii(error.object), 200)} is not UTF-8; rename or exclude it") from None
    except OSError as error:
        raise BadArgument(f"{visible(str(error.filename))} cannot be read: {error.strerror}") from None
    for entry in tree.entries:
        if entry.kind == "l" and not _leads_inside(entry, tree.entries):
            where = f"the link {visible(entry.path)} leads to {visible(entry.target)}"
            raise BadArgument(f"{where}, which is not put with it; exclude it with --exclude, or replace it by a copy")
    return tree


def _ignoring(folder: Path, exclude: Sequence[str]) -> Any:
    import pathspec  # 20 ms that other commands need not wait for

    lines = [*EXCLUDED]
    if (folder / IGNORE_FILE).is_file():
        lines += (folder / IGNORE_FILE).read_text(errors="replace").splitlines()
    try:
        return pathspec.GitIgnoreSpec.from_lines([*lines, *exclude])
    except (ValueError, re.error) as error:
        raise BadArgument(f"a pattern of {IGNORE_FILE} or --exclude cannot be understood: {error}") from None


def _walk(root: Path, folder: str, ignored: Any) -> Iterator[Entry]:
    """Yield the entries below a folder, in any order; an empty folder is an entry itself."""
    found = False
    with os.scandir(root / folder) as listing:
        names = sorted(listing, key=lambda each: each.name)
    for each in names:
        path = f"{folder}/{each.name}" if folder else each.name
        is_folder = each.is_dir(follow_symlinks=False)
        if ignored.match_file(f"{path}/" if is_folder else path):
            continue
        found = True
        path.encode()
        if is_folder:
            yield from _walk(root, path, ignored)
        elif each.is_symlink():
            yield Entry(kind="l", path=_sound(path), target=(root / path).readlink().as_posix())
        else:
            yield _file(root, path, each.stat(follow_symlinks=False))
    if not found and folder:
        yield Entry(kind="d", path=_sound(folder))


def _file(root: Path, path: str, about: os.stat_result) -> Entry:
    if not stat.S_ISREG(about.st_mode):
        raise BadArgument(f"{visible(path)} is no file, folder or link; exclude it with --exclude")
    size, sha = digest(root / path)
    return Entry(kind="x" if about.st_mode & 0o100 else "f", path=_sound(path), size=size, sha=sha)


def digest(path: Path) -> tuple[int, str]:
    """Return the bytes of a file and its SHA-256. BadArgument when it cannot be read."""
    made, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as opened:
            while piece := opened.read(_PIECE):
                made.update(piece)
                size += len(piece)
    except OSError as error:
        raise BadArgument(f"{visible(str(path))} cannot be read: {error.strerror}") from None
    return size, made.hexdigest()


def _sound(path: str) -> str:
    if why := unsound(path):
        raise BadArgument(f"{visible(path, 200)} cannot be put: {why}; rename or exclude it")
    return path


def _leads_inside(link: Entry, entries: Sequence[Entry]) -> bool:
    led = led_to(link)
    return led == "." or any(entry.path == led or entry.path.startswith(f"{led}/") for entry in entries)


# -- a manifest that is fetched ----------------------------------------------------------------------------------------


def parsed(text: bytes) -> list[Entry]:
    """Return the entries of a manifest. UnsafeArtifact when it is none, or a path of it leads elsewhere."""
    try:
        lines = text.decode().split("\n")
        entries = [_entry(json.loads(line)) for line in lines[1:-1]]
    except (ValueError, TypeError, IndexError, KeyError, RecursionError):
        raise UnsafeArtifact("the manifest of this artifact cannot be read") from None
    if lines[0] != HEAD:
        raise UnsafeArtifact("the manifest of this artifact is of another version; update the client")
    paths: dict[str, Entry] = {}
    for entry in entries:
        if why := unsound(entry.path):
            raise UnsafeArtifact(f"the artifact has the path {visible(entry.path, 200)}: {why}")
        if entry.path in paths or any(folder in paths for folder in folders_of(entry.path)):
            raise UnsafeArtifact(f"the artifact has two entries at {visible(entry.path, 200)}")
        paths[entry.path] = entry
    for entry in entries:
        if entry.kind == "l" and (posixpath.isabs(entry.target) or led_to(entry).split("/")[0] == ".."):
            raise UnsafeArtifact(
                f"the link {visible(entry.path)} leads out of the artifact, to {visible(entry.target)}"
            )
    return entries


def _entry(row: list[Any]) -> Entry:
    if len(row) != _FIELDS[row[0]] or not isinstance(row[1], str):
        raise ValueError
    if row[0] in "fx":
        size, sha = row[2:]
        if type(size) is not int or size < 0 or len(sha) != 64 or not set(sha) <= set("0123456789abcdef"):
            raise ValueError
        return Entry(kind=row[0], path=row[1], size=size, sha=sha)
    if row[0] == "l" and (not isinstance(row[2], str) or "\0" in row[2]):
        raise ValueError
    return Entry(kind=row[0], path=row[1], target=row[2] if row[0] == "l" else "")


def colliding(entries: Sequence[Entry]) -> tuple[str, str] | None:
    """Return two paths, or beginnings of paths, that differ in the case of letters alone; None without such."""
    known: dict[str, str] = {}
    for entry in entries:
        for path in (*folders_of(entry.path), entry.path):
            if known.setdefault(path.casefold(), path) != path:
                return known[path.casefold()], path
    return None


def unsound(path: str) -> str:
    """Return why a path could lead out of its folder, or is none; empty for a sound one."""
    if not path or path.startswith("/"):
        return "a path is relative to its folder"
    if "\0" in path or "\\" in path:
        return "a path has no NUL and no backslash"
    try:
        too_long = len(path.encode()) > 4096 or any(len(name.encode()) > 255 for name in path.split("/"))
    except UnicodeEncodeError:
        return "a path is UTF-8 text"
    if too_long:
        return "a path has at most 4,096 bytes, and 255 a part"
    return "a part of a path is a name" if set(path.split("/")) & {"", ".", ".."} else ""


def folders_of(path: str) -> Iterator[str]:
    """Yield the folders that a path is in, the outer ones first."""
    at = path.find("/")
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)


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
