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
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jobs import errors
from jobs.numbers import short

#: Largest manifest in bytes, most lines, longest path and part of a path in bytes, largest file.
MAX_BYTES, MAX_ENTRIES = 16 << 20, 50_000
MAX_PATH, MAX_NAME = 4096, 255
MAX_FILE = 64 << 30
SHA256 = r"^[0-9a-f]{64}$"
HEAD = '{"artifact":1}'
_SHA = re.compile(SHA256)
#: Kind of a line -> its fields.
_FIELDS = {"d": 2, "f": 4, "x": 4, "l": 3}


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Manifest that was read, and is sound."""

    id: str
    #: Size of each file by its SHA-256.
    sizes: dict[str, int]
    #: Files, and their bytes, each path counted.
    files: int
    bytes: int


def parsed(text: bytes) -> Manifest:
    """Return the manifest. InvalidRequest names the line and what is wrong with it; TooLarge beyond the bounds."""
    if len(text) > MAX_BYTES:
        raise errors.TooLarge(f"the manifest has over {MAX_BYTES} bytes; divide the folder", field="body")
    lines = _lines(text)
    if len(lines) - 1 > MAX_ENTRIES:
        raise errors.TooLarge(f"the manifest has over {MAX_ENTRIES} paths; divide the folder, or pack it", field="body")
    tree, sizes, files, total = _Tree(), dict[str, int](), 0, 0
    for number, line in enumerate(lines[1:], 2):
        try:
            kind, path, *rest = _entry(line)
            tree.add(kind, path, rest)
            if kind in "fx":
                size, sha = rest
                if sizes.setdefault(sha, size) != size:
                    raise ValueError(f"{short(path)} has another size than a file with the same hash")
                files, total = files + 1, total + size
        except ValueError as error:
            raise errors.InvalidRequest(f"line {number} of the manifest: {error}", field="body") from None
    tree.check_links()
    return Manifest(id=hashlib.sha256(text).hexdigest(), sizes=sizes, files=files, bytes=total)


def hashes(text: bytes) -> list[str]:
    """Return the files of a manifest that was committed, each once."""
    rows = (json.loads(line) for line in text.decode().splitlines()[1:])
    return list(dict.fromkeys(row[3] for row in rows if row[0] in "fx"))


def _lines(text: bytes) -> list[str]:
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError:
        raise errors.InvalidRequest("the manifest is no UTF-8 text", field="body") from None
    if lines[0] != HEAD or lines[-1] != "":
        raise errors.InvalidRequest(f"the manifest must begin with the line {HEAD} and end a line", field="body")
    return lines[:-1]


def _entry(line: str) -> list[Any]:
    """Return the fields of a line. ValueError when they are not those of its kind, or are written in another way."""
    try:
        row = json.loads(line)
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
        #: Kind by path; folders that paths are in too.
        self._kinds: dict[str, str] = {}
        self._folders: set[str] = set()
        self._links: dict[str, str] = {}

    def add(self, kind: str, path: str, rest: list[Any]) -> None:
        """Add an entry. ValueError for a path that leads elsewhere, comes twice or in another order."""
        check_path(path)
        encoded = path.encode()
        if encoded <= self._last:
            raise ValueError(f"{short(path)} comes twice, or not in the order of its bytes")
        self._last = encoded
        for folder in _folders_of(path):
            if self._kinds.get(folder, "") != "":
                raise ValueError(f"{short(path)} is below {short(folder)}, which is an entry itself")
            self._folders.add(folder)
        if path in self._folders:
            raise ValueError(f"{short(path)} is an entry and a folder with entries")
        self._kinds[path] = kind
        if kind == "l":
            self._links[path] = rest[0]

    def check_links(self) -> None:
        """Raise InvalidRequest unless each link leads to a path of the tree."""
        for path, target in self._links.items():
            led = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            there = led in self._kinds or led in self._folders or led == "."
            if posixpath.isabs(target) or led.startswith("..") or not there or "\0" in target:
                detail = f"the link {short(path)} leads to {short(target)}, which is no path of this artifact"
                raise errors.InvalidRequest(detail, field="body")


def check_path(path: str) -> None:
    """Raise ValueError for a path that could lead out of a folder, or that no file system has."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{short(path)} is no Unicode text") from None
    if not path or path.startswith("/") or "\0" in path or "\\" in path or len(encoded) > MAX_PATH:
        raise ValueError(f"{short(path)}: a path is relative, of at most {MAX_PATH} bytes, without NUL and backslash")
    for name in path.split("/"):
        if name in ("", ".", "..") or len(name.encode()) > MAX_NAME:
            raise ValueError(f"{short(path)}: parts of a path are names of 1 to {MAX_NAME} bytes, not . and ..")


def _folders_of(path: str) -> Iterator[str]:
    at = path.find("/")
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)
