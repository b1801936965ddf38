"""Functions that build manifests from folders, and validate manifests before files are written.

docs/artifacts.md defines the manifest format: JSON lines, one path per line, sorted by bytes.
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

#: Patterns of paths that are never uploaded, in .gitignore syntax. A .clusterignore can add or negate patterns.
EXCLUDED = (".git", "__pycache__", ".venv", "node_modules", ".env", ".cluster", ".cluster-*.part")
IGNORE_FILE = ".clusterignore"
#: File in the top folder of each virtual environment. These folders are excluded regardless of their names.
_ENVIRONMENT_FILE = "pyvenv.cfg"
#: Content of a .clusterignore that excludes its folder from uploads of parent folders.
_ALL = b"*"
_PIECE = 1 << 20


class UnsafeArtifact(ClientError):
    """A manifest is invalid, or one of its paths points outside the folder. No file was written."""


# -- upload ------------------------------------------------------------------------------------------------------------


def scan(path: Path, exclude: Sequence[str] = ()) -> Tree:
    """Read a folder or a single file, and return the tree of its paths.

    Raises BadArgument for an unsupported file, such as a link that points outside the folder.
    """
    if path.is_file() and not path.is_symlink():
        return Tree(root=path.parent, entries=[_file(path.parent, path.name)])
    if not path.is_dir():
        raise BadArgument(f"{visible(str(path))} is neither a folder nor a file")
    try:
        entries = sorted(_walk(path, _ignoring(path, exclude)), key=lambda entry: entry.path.encode())
    except UnicodeEncodeError as error:
        raise BadArgument(f"the name {visible(ascii(error.object), 200)} is not UTF-8; rename or exclude it") from None
    except OSError as error:
        raise BadArgument(f"{visible(str(error.filename))} cannot be read: {error.strerror}") from None
    ends = folders.resolve_links(entries)
    for entry in entries:
        if entry.kind == "l" and ends[entry.path] is None:
            link, target = visible(entry.path), visible(entry.target)
            raise BadArgument(
                f"the link {link} leads to {target}, which is not uploaded; "
                "use --exclude, or replace the link with a copy"
            )
    return Tree(root=path, entries=entries)


def listed(root: Path, paths: Iterable[str]) -> Tree:
    """Read the files of a folder that `paths` lists. Raises BadArgument if a file cannot be read."""
    return Tree(root=root, entries=sorted((_file(root, path) for path in paths), key=lambda each: each.path.encode()))


def _ignoring(folder: Path, exclude: Sequence[str]) -> Any:
    import pathspec  # The import is here because it takes 20 ms

    lines = [*EXCLUDED]
    if _leaves_all_out(folder, "."):  # The pattern `*` applies only to uploads of parent folders
        lines.append(IGNORE_FILE)
    elif (folder / IGNORE_FILE).is_file():
        lines += (folder / IGNORE_FILE).read_text(errors="replace").splitlines()
    try:
        return pathspec.GitIgnoreSpec.from_lines([*lines, *exclude])
    except (ValueError, re.error) as error:
        raise BadArgument(f"a pattern of {IGNORE_FILE} or --exclude is invalid: {error}") from None


def _walk(root: Path, ignored: Any) -> Iterator[Entry]:
    """Yield the entries of a folder in any order. An empty folder is also an entry."""
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
                if not (_leaves_all_out(root, path) or _is_environment(root, path, ignored)):
                    left.append(path)
            elif stat.S_ISLNK(mode):
                yield Entry(kind="l", path=_sound(path), target=target)
            elif stat.S_ISREG(mode):
                yield _file(root, path)
            else:
                raise BadArgument(f"{visible(path)} is not a file, folder or link; exclude it with --exclude")


def _leaves_all_out(root: Path, folder: str) -> bool:
    """Return True if the .clusterignore of a folder excludes the folder from uploads of parent folders."""
    try:
        return (root / folder / IGNORE_FILE).read_bytes()[: len(_ALL) + 1].strip() == _ALL
    except OSError:
        return False


def _is_environment(root: Path, folder: str, ignored: Any) -> bool:
    """Return True for a virtual environment, unless a pattern includes it."""
    return (root / folder / _ENVIRONMENT_FILE).is_file() and ignored.check_file(f"{folder}/").include is None


def leave_out(folder: Path) -> None:
    """Exclude an existing folder from uploads of parent folders."""
    with suppress(OSError):
        (folder / IGNORE_FILE).write_bytes(_ALL + b"\n")


def _is_ignored(ignored: Any, path: str, mode: int) -> bool:
    return bool(ignored.match_file(f"{path}/" if stat.S_ISDIR(mode) else path))


def opened(root: Path, path: str) -> BinaryIO:
    """Open a regular file below a folder. Raises BadArgument if the path is not a readable file."""
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
        raise BadArgument(f"{visible(path)} is larger than {MAX_FILE >> 30} GiB; split it, or use --exclude")
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


# -- download ----------------------------------------------------------------------------------------------------------


def parsed(text: bytes) -> list[Entry]:
    """Parse a manifest. Raises UnsafeArtifact if it is invalid or one of its paths points outside the folder."""
    if not text.startswith(f"{manifest.HEAD}\n".encode()):
        raise UnsafeArtifact("the manifest of this artifact has an unknown version; update the client")
    try:
        return manifest.entries(text)
    except MalformedText as error:
        raise UnsafeArtifact(f"the manifest of this artifact is invalid: {error}") from None


def colliding(entries: Iterable[Entry]) -> tuple[str, str] | None:
    """Return two paths that differ only in letter case or Unicode form, or None if there are none.

    The paths can also be prefixes of paths.
    """
    # In this order, paths with equal prefixes are adjacent, regardless of case and Unicode form.
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
    """Return a path in the form in which file systems without case compare it."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold()).replace("/", "\0")


def led_to(link: Entry) -> str:
    """Return the path to which a link points, relative to the tree. A path outside the tree starts with `..`."""
    if posixpath.isabs(link.target):
        return ".."
    return posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))


def by_hash(entries: Sequence[Entry]) -> Mapping[str, list[Entry]]:
    """Return the files of a tree, keyed by their SHA-256."""
    files: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.is_file:
            files.setdefault(entry.sha, []).append(entry)
    return files
