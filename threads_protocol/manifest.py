"""Manifests, which describe the tree of an artifact as JSON lines. The SHA-256 of a manifest is the artifact's ID.

    {"artifact":1}
    ["d","empty"]                        an empty folder
    ["f","data/a.csv",1024,"9f86d0..."]  a file: size in bytes, SHA-256
    ["l","latest","data/a.csv"]          a symbolic link to another path of the tree
    ["x","run.sh",52,"60303a..."]        an executable file

Each line describes one path, and lines are sorted by path. A tree has exactly one manifest, so two uploads of the same
folder create the same artifact.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from threads_protocol.errors import MalformedText, TooLarge
from threads_protocol.links import Links
from threads_protocol.numbers import short

#: Maximum size of a manifest in bytes.
#: Maximum number of lines in a manifest.
MAX_BYTES, MAX_ENTRIES = 16 << 20, 50_000
#: Maximum length of a path in bytes.
#: Maximum length of a file name in bytes.
MAX_PATH, MAX_NAME = 4096, 255
#: Maximum size of a file in bytes.
MAX_FILE = 64 << 30
#: Maximum number of characters in a line. It is enough for two paths that consist only of escape sequences.
_MAX_LINE = 64 << 10
SHA256 = r"^[0-9a-f]{64}$"
HEAD = '{"artifact":1}'
_SHA = re.compile(SHA256)
#: Number of fields in a line, keyed by the type of the line.
_FIELDS = {"d": 2, "f": 4, "x": 4, "l": 3}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One path of a tree: a folder, a file or a link."""

    #: Type of the path: d is an empty folder, f a file, x an executable file, and l a symbolic link.
    kind: str
    path: str
    size: int = 0
    sha: str = ""
    #: Target of a symbolic link, relative to the folder of the link.
    target: str = ""

    @property
    def is_file(self) -> bool:
        return self.kind in "fx"

    @property
    def line(self) -> str:
        """Encode the entry as a line of a manifest."""
        rest: list[Any] = [self.size, self.sha] if self.is_file else [self.target] if self.kind == "l" else []
        return json.dumps([self.kind, self.path, *rest], ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Manifest that was parsed and validated."""

    id: str
    #: Sizes of the files in bytes, keyed by SHA-256.
    sizes: dict[str, int]
    #: Number of files. A file with several paths counts once for each path.
    files: int
    bytes: int
    #: Paths of all files.
    paths: tuple[str, ...]


def parse(text: bytes) -> Manifest:
    """Parse and validate a manifest. Raises MalformedText with the line number, or TooLarge."""
    sizes, paths, total = dict[str, int](), list[str](), 0
    for kind, path, *rest in _split_fields(text):
        if kind in "fx":
            size, sha = rest
            sizes[sha] = size
            paths.append(path)
            total += size
    made = hashlib.sha256(text).hexdigest()
    return Manifest(id=made, sizes=sizes, files=len(paths), bytes=total, paths=tuple(paths))


def entries(text: bytes) -> list[Entry]:
    """Parse the entries of a manifest, and check that none leaves its folder. Raises the same errors as `parse`."""
    return [_build_entry(*row) for row in _split_fields(text)]


def serialize(paths: Iterable[Entry]) -> bytes:
    """Encode entries as a manifest. The entries can be in any order."""
    ordered = sorted(paths, key=lambda entry: entry.path.encode())
    return "".join(f"{line}\n" for line in (HEAD, *(entry.line for entry in ordered))).encode()


def _build_entry(kind: str, path: str, *rest: Any) -> Entry:
    if kind in "fx":
        return Entry(kind=kind, path=path, size=rest[0], sha=rest[1])
    return Entry(kind=kind, path=path, target=rest[0] if kind == "l" else "")


def _split_fields(text: bytes) -> list[list[Any]]:
    """Return the fields of each line except for the first line. Raises the same errors as `parse`."""
    if len(text) > MAX_BYTES:
        raise TooLarge(f"the manifest has over {MAX_BYTES} bytes; split the folder")
    if text.count(b"\n") - 1 > MAX_ENTRIES:
        raise TooLarge(f"the manifest has over {MAX_ENTRIES} paths; split the folder, or pack it into an archive")
    lines = _split_lines(text)
    tree, rows = _Tree(), list[list[Any]]()
    for number, line in enumerate(lines[1:], 2):
        try:
            kind, path, *rest = row = _parse_line(line)
            tree.add(kind, path, rest)
        except ValueError as error:
            raise _line_error(number, error) from None
        rows.append(row)
    tree.check()
    return rows


def _line_error(number: int, why: object) -> MalformedText:
    return MalformedText(f"line {number} of the manifest: {why}")


def hashes(text: bytes) -> list[str]:
    """Return the distinct hashes of the files in a valid manifest."""
    rows = (json.loads(line) for line in text.decode().split("\n")[1:-1])
    return list(dict.fromkeys(row[3] for row in rows if row[0] in "fx"))


def _split_lines(text: bytes) -> list[str]:
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError:
        raise MalformedText("the manifest is not UTF-8 text") from None
    if lines[0] != HEAD or lines[-1] != "":
        raise MalformedText(f"the manifest must start with the line {HEAD} and end with a newline")
    return lines[:-1]


def _parse_line(line: str) -> list[Any]:
    """Parse the fields of a line. Raises ValueError if a field is invalid or the line is not canonical JSON."""
    try:
        row = json.loads(line) if len(line) <= _MAX_LINE else None
    except (ValueError, RecursionError):
        raise ValueError(f"{short(line, 80)} is not JSON") from None
    if not isinstance(row, list) or not row or len(row) != _FIELDS.get(row[0] if isinstance(row[0], str) else "", 0):
        raise ValueError(f"{short(line, 80)} is not an entry; see docs/artifacts.md")
    if not all(isinstance(field, str) for at, field in enumerate(row) if at != 2 or row[0] == "l"):
        raise ValueError(f"{short(line, 80)} has a field of the wrong type")
    if row[0] in "fx":
        _check_file(*row[1:])
    if json.dumps(row, ensure_ascii=False, separators=(",", ":")) != line:
        raise ValueError(f"{short(line, 80)} must be JSON without spaces and escapes")
    return row


def _check_file(path: str, size: Any, sha: str) -> None:
    if type(size) is not int or not 0 <= size <= MAX_FILE:
        raise ValueError(f"{short(path)} has the size {short(size)}; a file has 0 to {MAX_FILE} bytes")
    if not _SHA.fullmatch(sha):
        raise ValueError(f"{short(path)} needs a SHA-256 of 64 hexadecimal digits")


class _Tree:
    """Validator of the entries of a manifest, which are added in the manifest's order."""

    def __init__(self) -> None:
        self._last = b""
        self._paths: list[str] = []
        self._links: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    def add(self, kind: str, path: str, rest: list[Any]) -> None:
        """Add an entry. Raises ValueError if its path is unsafe, repeated or out of order.

        Also raises ValueError if the size differs from the size of another file with the same hash.
        """
        check_path(path)
        encoded = path.encode()
        if encoded <= self._last:
            raise ValueError(f"{short(path)} is repeated, or not sorted by its bytes")
        self._last = encoded
        self._paths.append(path)
        if kind == "l":
            check_target(path, rest[0])
            self._links[path] = rest[0]
        elif kind in "fx" and self._sizes.setdefault(rest[1], rest[0]) != rest[0]:
            raise ValueError(f"{short(path)} has a different size than another file with the same hash")

    def check(self) -> None:
        """Raise MalformedText if an entry is below a file or a link, or if the target of a link does not exist."""
        # With NUL instead of "/", each path is sorted directly before the paths below it.
        for path, after in pairwise(sorted(self._paths, key=lambda each: each.replace("/", "\0"))):
            if after.startswith(f"{path}/"):
                detail = (
                    f"the manifest has {short(after)} below {short(path)}, which is a file, a link or an empty folder"
                )
                raise MalformedText(detail)
        links = Links(self._links, self._paths)
        for path, target in self._links.items():
            if links.resolve(path) is None:
                detail = f"the link {short(path)} points to {short(target)}, which is not in this artifact"
                raise MalformedText(detail)


def check_target(path: str, target: str) -> None:
    """Raise ValueError if the target of a link is empty, is too long or contains NUL."""
    if not target or "\0" in target or len(target.encode()) >= MAX_PATH:
        raise ValueError(f"the link {short(path, 200)} has a target that is empty, is too long or contains NUL")


def check_path(path: str) -> None:
    """Raise ValueError if a path could leave its folder or is not valid on Linux."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{short(path, 200)} is not Unicode text") from None
    if not path or path.startswith("/") or "\0" in path or "\\" in path or len(encoded) > MAX_PATH:
        rule = f"a path must be relative, at most {MAX_PATH} bytes long, and without NUL and backslash"
        raise ValueError(f"{short(path, 200)}: {rule}")
    for name in path.split("/"):
        if name in ("", ".", "..") or len(name.encode()) > MAX_NAME:
            raise ValueError(
                f"{short(path, 200)}: each part of a path must have 1 to {MAX_NAME} bytes and must not be . or .."
            )
