"""Manifests: the tree of an artifact as JSON lines, one path a line, sorted; its SHA-256 is the artifact's id. Pure.

    {"artifact":1}
    ["d","empty"]                        a folder with nothing in it
    ["f","data/a.csv",1024,"9f86d0..."]  a file: bytes, SHA-256
    ["l","latest","data/a.csv"]          a link to another path of the tree
    ["x","run.sh",52,"60303a..."]        a file that may be executed

There is one way to write a tree, so that two uploads of one folder are one artifact.
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

#: Largest manifest in bytes, most lines, longest path and part of a path in bytes, largest file.
MAX_BYTES, MAX_ENTRIES = 16 << 20, 50_000
MAX_PATH, MAX_NAME = 4096, 255
MAX_FILE = 64 << 30
#: Characters of a line: two paths in which each byte is an escape need fewer.
_MAX_LINE = 64 << 10
SHA256 = r"^[0-9a-f]{64}$"
HEAD = '{"artifact":1}'
_SHA = re.compile(SHA256)
#: Kind of a line -> its fields.
_FIELDS = {"d": 2, "f": 4, "x": 4, "l": 3}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One path of a tree."""

    #: d: an empty folder, f: a file, x: one that may be executed, l: a link.
    kind: str
    path: str
    size: int = 0
    sha: str = ""
    #: Path that a link leads to, relative to its own folder.
    target: str = ""

    @property
    def is_file(self) -> bool:
        return self.kind in "fx"

    @property
    def line(self) -> str:
        """The entry as a line of a manifest."""
        rest: list[Any] = [self.size, self.sha] if self.is_file else [self.target] if self.kind == "l" else []
        return json.dumps([self.kind, self.path, *rest], ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Manifest that was read, and is sound."""

    id: str
    #: Size of each file by its SHA-256.
    sizes: dict[str, int]
    #: Files, and their bytes, each path counted.
    files: int
    bytes: int
    #: Paths of the files.
    paths: tuple[str, ...]


def parse(text: bytes) -> Manifest:
    """Return the manifest. MalformedText names the line and what is wrong with it; TooLarge beyond the bounds."""
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
    """Return the paths of a manifest, none of which leads out of its folder. Errors as `parsed`."""
    return [_build_entry(*row) for row in _split_fields(text)]


def serialize(paths: Iterable[Entry]) -> bytes:
    """Return the manifest of these paths, in any order."""
    ordered = sorted(paths, key=lambda entry: entry.path.encode())
    return "".join(f"{line}\n" for line in (HEAD, *(entry.line for entry in ordered))).encode()


def _build_entry(kind: str, path: str, *rest: Any) -> Entry:
    if kind in "fx":
        return Entry(kind=kind, path=path, size=rest[0], sha=rest[1])
    return Entry(kind=kind, path=path, target=rest[0] if kind == "l" else "")


def _split_fields(text: bytes) -> list[list[Any]]:
    """Return the fields of each line but the first. Errors as `parsed`."""
    if len(text) > MAX_BYTES:
        raise TooLarge(f"the manifest has over {MAX_BYTES} bytes; divide the folder")
    if text.count(b"\n") - 1 > MAX_ENTRIES:
        raise TooLarge(f"the manifest has over {MAX_ENTRIES} paths; divide the folder, or pack it")
    lines = _split_lines(text)
    tree, rows = _Tree(), list[list[Any]]()
    for number, line in enumerate(lines[1:], 2):
        try:
            kind, path, *rest = row = _entry(line)
            tree.add(kind, path, rest)
        except ValueError as error:
            raise _wrong(number, error) from None
        rows.append(row)
    tree.check()
    return rows


def _wrong(number: int, why: object) -> MalformedText:
    return MalformedText(f"line {number} of the manifest: {why}")


def hashes(text: bytes) -> list[str]:
    """Return the files of a manifest that was committed, each once."""
    rows = (json.loads(line) for line in text.decode().split("\n")[1:-1])
    return list(dict.fromkeys(row[3] for row in rows if row[0] in "fx"))


def _split_lines(text: bytes) -> list[str]:
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError:
        raise MalformedText("the manifest is no UTF-8 text") from None
    if lines[0] != HEAD or lines[-1] != "":
        raise MalformedText(f"the manifest must begin with the line {HEAD} and end a line")
    return lines[:-1]


def _entry(line: str) -> list[Any]:
    """Return the fields of a line. ValueError when they are not those of its kind, or are written in another way."""
    try:
        row = json.loads(line) if len(line) <= _MAX_LINE else None
    except (ValueError, RecursionError):
        raise ValueError(f"{short(line, 80)} is not JSON") from None
    if not isinstance(row, list) or not row or len(row) != _FIELDS.get(row[0] if isinstance(row[0], str) else "", 0):
        raise ValueError(f"{short(line, 80)} is no entry; see docs/artifacts.md")
    if not all(isinstance(field, str) for at, field in enumerate(row) if at != 2 or row[0] == "l"):
        raise ValueError(f"{short(line, 80)} has a field of the wrong type")
    if row[0] in "fx":
        _check_file(*row[1:])
    if json.dumps(row, ensure_ascii=False, separators=(",", ":")) != line:
        raise ValueError(f"{short(line, 80)} is not written as JSON without spaces and escapes")
    return row


def _check_file(path: str, size: Any, sha: str) -> None:
    if type(size) is not int or not 0 <= size <= MAX_FILE:
        raise ValueError(f"{short(path)} has the size {short(size)}; a file has 0 to {MAX_FILE} bytes")
    if not _SHA.fullmatch(sha):
        raise ValueError(f"{short(path)} has no SHA-256 of 64 hexadecimal digits")


class _Tree:
    """Paths of a manifest, in their order."""

    def __init__(self) -> None:
        self._last = b""
        self._paths: list[str] = []
        self._links: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    def add(self, kind: str, path: str, rest: list[Any]) -> None:
        """Add an entry. Raises ValueError for a path that leads elsewhere, comes twice or is out of order.

        Also raises ValueError if a file has another size than one with the same hash.
        """
        check_path(path)
        encoded = path.encode()
        if encoded <= self._last:
            raise ValueError(f"{short(path)} comes twice, or not in the order of its bytes")
        self._last = encoded
        self._paths.append(path)
        if kind == "l":
            check_target(path, rest[0])
            self._links[path] = rest[0]
        elif kind in "fx" and self._sizes.setdefault(rest[1], rest[0]) != rest[0]:
            raise ValueError(f"{short(path)} has another size than a file with the same hash")

    def check(self) -> None:
        """Raise MalformedText for an entry below another, and for a link that leads to no path of the tree."""
        # In this order a path comes right before those below it.
        for path, after in pairwise(sorted(self._paths, key=lambda each: each.replace("/", "\0"))):
            if after.startswith(f"{path}/"):
                detail = f"the manifest has {short(after)} below {short(path)}, which is an entry itself"
                raise MalformedText(detail)
        links = Links(self._links, self._paths)
        for path, target in self._links.items():
            if links.end(path) is None:
                detail = f"the link {short(path)} leads to {short(target)}, which is no path of this artifact"
                raise MalformedText(detail)


def check_target(path: str, target: str) -> None:
    """Raise ValueError for a target that no link has."""
    if not target or "\0" in target or len(target.encode()) >= MAX_PATH:
        raise ValueError(f"the link {short(path, 200)} has a target that is empty, too long or has a NUL")


def check_path(path: str) -> None:
    """Raise ValueError for a path that could lead out of a folder, or that no file system has."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{short(path, 200)} is no Unicode text") from None
    if not path or path.startswith("/") or "\0" in path or "\\" in path or len(encoded) > MAX_PATH:
        rule = f"a path is relative, of at most {MAX_PATH} bytes, without NUL and backslash"
        raise ValueError(f"{short(path, 200)}: {rule}")
    for name in path.split("/"):
        if name in ("", ".", "..") or len(name.encode()) > MAX_NAME:
            raise ValueError(f"{short(path, 200)}: parts of a path are names of 1 to {MAX_NAME} bytes, not . and ..")
