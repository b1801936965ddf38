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
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from threads_cluster.errors import BadArgument, ClientError
from threads_cluster.links import Links
from threads_cluster.terminal import visible

#: Left out of every folder, as lines of .gitignore; the folder's .clusterignore adds to them, and may take back.
EXCLUDED = (".git", "__pycache__", ".venv", "node_modules", ".env", ".cluster", ".cluster-*.part")
IGNORE_FILE = ".clusterignore"
#: A folder whose own file of this name says no more than this is left out of those around it.
_ALL = b"*"
HEAD = '{"artifact":1}'
#: Largest file in bytes.
MAX_FILE = 64 << 30
#: Bytes of a link's target, as Linux has it.
_MAX_TARGET = 4096
_SHA = re.compile("[0-9a-f]{64}")
_PIECE = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
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
        return Tree(root=path.parent, entries=[_file(path.parent, path.name)])
    if not path.is_dir():
        raise BadArgument(f"{visible(str(path))} is no folder and no file")
    tree = Tree(root=path)
    try:
        tree.entries = sorted(_walk(path, _ignoring(path, exclude)), key=lambda entry: entry.path.encode())
    except UnicodeEncodeError as error:
        raise BadArgument(f"the name {visible(ascii(error.object), 200)} is not UTF-8; rename or exclude it") from None
    except OSError as error:
        raise BadArgument(f"{visible(str(error.filename))} cannot be read: {error.strerror}") from None
    ends = _ends(tree.entries)
    for entry in tree.entries:
        if entry.kind == "l" and ends[entry.path] is None:
            where = f"the link {visible(entry.path)} leads to {visible(entry.target)}"
            raise BadArgument(f"{where}, which is not put with it; exclude it with --exclude, or replace it by a copy")
    return tree


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
    folders = [""]
    while folders:
        folder = folders.pop()
        listed = _listed(root, folder)
        kept = [(path, mode, target) for path, mode, target in listed if not _is_ignored(ignored, path, mode)]
        if not kept and folder:
            yield Entry(kind="d", path=_sound(folder))
        for path, mode, target in kept:
            path.encode()
            if stat.S_ISDIR(mode):
                if not _leaves_all_out(root, path):
                    folders.append(path)
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


def _listed(root: Path, folder: str) -> list[tuple[str, int, str]]:
    """Return path, mode and, of a link, target of what lies in a folder."""
    rows = []
    with _folder(root, folder) as opened:
        for name in sorted(os.listdir(opened)):  # noqa: PTH208 - no Path is a folder that is open
            mode = os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode
            target = os.readlink(name, dir_fd=opened) if stat.S_ISLNK(mode) else ""
            rows.append((f"{folder}/{name}" if folder else name, mode, target))
    return rows


@contextmanager
def _folder(root: Path, folder: str) -> Iterator[int]:
    """Open a folder below another. A link on the way is not followed: somebody may have put it there just now."""
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in folder.split("/") if folder else ():
            try:
                inner = os.open(name, _FOLDER, dir_fd=opened)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(root / folder)) from None
            os.close(opened)
            opened = inner
        yield opened
    finally:
        os.close(opened)


def opened(root: Path, path: str) -> BinaryIO:
    """Open a file below a folder, and nothing else in its place. BadArgument when it cannot be read."""
    folder, _, name = path.rpartition("/")
    try:
        with _folder(root, folder) as parent:
            number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    except OSError as error:
        raise BadArgument(f"{visible(path)} cannot be read: {error.strerror}") from None
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.fdopen(number, "rb")
    os.close(number)
    raise BadArgument(f"{visible(path)} is no file any more")


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
    if why := unsound(path):
        raise BadArgument(f"{visible(path, 200)} cannot be put: {why}; rename or exclude it")
    return path


def _ends(entries: Iterable[Entry]) -> dict[str, str | None]:
    """Return where each link ends; None for one that leads outside, or nowhere."""
    targets = {entry.path: entry.target for entry in entries if entry.kind == "l"}
    links = Links(targets, sorted(entry.path for entry in entries))
    return {path: links.end(path) for path in targets}


def with_sound_links(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries without links that lead to none of them, nor to a folder that has some."""
    while True:
        ends = _ends(entries)
        kept = [entry for entry in entries if entry.kind != "l" or ends[entry.path] is not None]
        if len(kept) == len(entries):
            return kept
        entries = kept


# -- a manifest that is fetched ----------------------------------------------------------------------------------------


def parsed(text: bytes) -> list[Entry]:
    """Return the entries of a manifest. UnsafeArtifact when it is none, or a path of it leads elsewhere."""
    try:
        head, *lines, rest = text.decode().split("\n")
        entries = [_entry(json.loads(line)) for line in lines]
        # There is one way to write a manifest, so that no two readers take it for different trees.
        read = rest == "" and [entry.line for entry in entries] == lines and _are_in_order(entries)
    except (ValueError, TypeError, IndexError, KeyError, RecursionError):
        head, read = HEAD, False
    if head != HEAD:
        raise UnsafeArtifact("the manifest of this artifact is of another version; update the client")
    if not read:
        raise UnsafeArtifact("the manifest of this artifact cannot be read")
    return checked(entries)


def _are_in_order(entries: Sequence[Entry]) -> bool:
    paths = [entry.path.encode() for entry in entries]
    return all(path < after for path, after in pairwise(paths))


def checked(entries: list[Entry]) -> list[Entry]:
    """Return the entries. Raises UnsafeArtifact if a path leads elsewhere, or if two entries have the same path.

    Also raises UnsafeArtifact if two files with the same hash have different sizes.
    """
    for entry in entries:
        if why := unsound(entry.path):
            raise UnsafeArtifact(f"the artifact has the path {visible(entry.path, 200)}: {why}")
    # In this order a path comes right before those below it.
    for path, after in pairwise(sorted((entry.path for entry in entries), key=_by_parts)):
        if path == after or after.startswith(f"{path}/"):
            raise UnsafeArtifact(f"the artifact has two entries at {visible(path, 200)}")
    _check_sizes(entries)
    ends = _ends(entries)
    for entry in entries:
        if entry.kind == "l" and ends[entry.path] is None:
            raise UnsafeArtifact(
                f"the link {visible(entry.path)} leads out of the artifact, to {visible(entry.target)}"
            )
    return entries


def _check_sizes(entries: Sequence[Entry]) -> None:
    for first, *others in by_hash(entries).values():
        for entry in others:
            if entry.size != first.size:
                sizes = f"{visible(first.path, 200)} has {first.size} bytes and {visible(entry.path, 200)} {entry.size}"
                raise UnsafeArtifact(f"the manifest of this artifact is wrong: {sizes}, with the same hash")


def _by_parts(path: str) -> str:
    return path.replace("/", "\0")


def _entry(row: list[Any]) -> Entry:
    if len(row) != _FIELDS[row[0]] or not isinstance(row[1], str):
        raise ValueError
    if row[0] in "fx":
        size, sha = row[2:]
        if type(size) is not int or not 0 <= size <= MAX_FILE or not _SHA.fullmatch(sha):
            raise ValueError
        return Entry(kind=row[0], path=row[1], size=size, sha=sha)
    if row[0] == "l" and (
        not isinstance(row[2], str) or not row[2] or "\0" in row[2] or len(row[2].encode()) >= _MAX_TARGET
    ):
        raise ValueError
    return Entry(kind=row[0], path=row[1], target=row[2] if row[0] == "l" else "")


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
