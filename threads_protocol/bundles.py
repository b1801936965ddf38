"""Format of bundles. A bundle contains many small files in one request body.

A bundle is a line of JSON, `[["SHA-256", bytes], ...]`, followed by the contents of the files in the same order.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from threads_protocol.errors import MalformedText, TooLarge
from threads_protocol.manifest import SHA256, Entry

#: Maximum number of files in a bundle.
#: Maximum total size in bytes of the files in a bundle.
MAX_FILES, MAX_BYTES = 1000, 8 << 20
#: Maximum size in bytes of the JSON line of a bundle.
_MAX_LINE = 128 << 10
MAX_BODY = MAX_BYTES + _MAX_LINE
_SHA = re.compile(SHA256)


def unpack(body: bytes) -> dict[str, bytes]:
    """Return the contents of the files in a bundle, keyed by SHA-256. Raises MalformedText if a hash or the size is
    wrong.
    """
    line, _, rest = body.partition(b"\n")
    rows = _parse_index(line)
    if len(rows) > MAX_FILES:
        raise TooLarge(f"the bundle has over {MAX_FILES} files; send several bundles")
    if sum(size for _, size in rows) != len(rest):
        detail = f"the bundle announces {sum(size for _, size in rows)} bytes but contains {len(rest)}; send it again"
        raise MalformedText(detail)
    files, at = dict[str, bytes](), 0
    for sha, size in rows:
        data = rest[at : at + size]
        if hashlib.sha256(data).hexdigest() != sha:
            raise MalformedText(f"the bundle's file {sha} has a different SHA-256; send it again")
        files[sha], at = data, at + size
    return files


def pack(files: Sequence[tuple[str, bytes]]) -> bytes:
    """Encode files as a bundle. Each file is a pair of its SHA-256 and its content."""
    head = json.dumps([[sha, len(data)] for sha, data in files], separators=(",", ":"))
    return b"".join([head.encode(), b"\n", *(data for _, data in files)])


def _parse_index(line: bytes) -> list[tuple[str, int]]:
    try:
        rows: Any = json.loads(line) if len(line) <= _MAX_LINE else None
        sound = isinstance(rows, list) and all(_is_row(row) for row in rows)
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise MalformedText('the bundle must start with a line [["SHA-256", bytes], ...]')
    return [(sha, size) for sha, size in rows]


def _is_row(row: Any) -> bool:
    if not isinstance(row, list) or len(row) != 2:
        return False
    sha, size = row
    return isinstance(sha, str) and bool(_SHA.fullmatch(sha)) and type(size) is int and size >= 0


def group(entries: Iterable[Entry], max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES) -> Iterator[list[Entry]]:
    """Group files into bundles, in the order of the files."""
    bundle, size = list[Entry](), 0
    for entry in entries:
        if bundle and (len(bundle) == max_files or size + entry.size > max_bytes):
            yield bundle
            bundle, size = [], 0
        bundle.append(entry)
        size += entry.size
    if bundle:
        yield bundle
