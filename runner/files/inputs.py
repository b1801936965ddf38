"""Cached inputs of jobs on a runner: lists of their files, and their items."""

from __future__ import annotations

import os
import re
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from runner.files.cache import FileCache
from threads_protocol import manifest
from threads_protocol.manifest import Entry

#: Maximum number of jobs whose inputs stay in memory.
MOST_JOBS = 8
#: Maximum number of items per job.
#: `LONGEST_ITEM` is the maximum size of an item in bytes, because Linux limits environment variables.
MOST_ITEMS, LONGEST_ITEM = 100_000, 128 << 10
PIECE = 1 << 20
#: Name of the file with the items, if their artifact contains further files.
ITEMS_FILE = "items.jsonl"
#: Maximum number of files that an item can name. Linux sends at most 253 descriptors with a message.
MOST_ITEM_FILES = 250
_LINE_END = re.compile(rb"\n")

Input = TypeVar("Input")


class Files(Protocol):
    """Access to the files and secrets of one job under a lease, as implemented by
    `jobs.worker.api.api_files.JobFiles`.
    """

    def manifest(self, which: str = "files") -> bytes: ...

    def fetch(
        self, entries: Sequence[Entry], write: Callable[[str, Iterator[bytes]], None], parent: str = ""
    ) -> None: ...

    def results(self, units: Sequence[tuple[str, int]]) -> list[dict[str, Any]]: ...

    def keep(self, folder: Path, units: Sequence[int]) -> str: ...

    def secrets(self) -> dict[str, str]: ...

    def output(self, unit: int, attempt: int, offset: int, chunks: Sequence[tuple[str, bytes]]) -> bool: ...

    def replica(self, **fields: str | int) -> None: ...

    def lead(self) -> dict[str, Any]: ...


class MissingItem(Exception):
    """A unit has no valid item. The message contains the reason."""


class Items:
    """Items of a job, read from a file with one line of JSON per unit. The file can be deleted while it is open."""

    def __init__(self, path: Path, further: Mapping[str, Entry] = MappingProxyType({})) -> None:
        """Read the items in `path`. `further` contains the other files of their artifact, keyed by path."""
        self._stream = path.open("rb")
        self._further = further
        self._lock = threading.Lock()
        self.offsets = array("Q", [0])
        at = 0
        while (piece := self._stream.read(PIECE)) and len(self.offsets) <= MOST_ITEMS:
            ends = (match.end() for match in _LINE_END.finditer(piece))
            self.offsets.extend(at + end for end in islice(ends, MOST_ITEMS))
            at += len(piece)
        if self.offsets[-1] < at:
            self.offsets.append(at)

    def line(self, unit: int) -> str:
        """Return the item of a unit as JSON. Raises MissingItem."""
        if unit >= len(self.offsets) - 1:
            raise MissingItem(f"the file of items has {len(self.offsets) - 1} lines, so unit {unit} has no item")
        start, end = self.offsets[unit : unit + 2]
        if end - start > LONGEST_ITEM:
            raise MissingItem(f"the item of unit {unit} has {end - start} bytes; the maximum is {LONGEST_ITEM}")
        return os.pread(self._stream.fileno(), end - start, start).decode(errors="replace").strip()

    @property
    def has_files(self) -> bool:
        """Return True if items can name files."""
        return bool(self._further)

    def files(self, item: Any) -> list[Entry]:
        """Return the files that an item names in its field `files`. Raises MissingItem."""
        if not self._further or not isinstance(item, dict):
            return []
        names = item.get("files", [])
        if not isinstance(names, list) or len(names) > MOST_ITEM_FILES:
            raise MissingItem(f"the item's files must be a list of at most {MOST_ITEM_FILES} paths")
        if missing := [name for name in names if not isinstance(name, str) or name not in self._further]:
            raise MissingItem(f"the artifact of items does not contain the file {str(missing[0])[:200]}")
        return [self._further[name] for name in names]

    def close(self) -> None:
        self._stream.close()


class Inputs:
    """Cache of the inputs of recent jobs. Thread-safe."""

    def __init__(self, cache: FileCache) -> None:
        self.cache = cache
        self._lock = threading.Lock()
        self._entries: dict[str, list[Entry]] = {}
        self._items: dict[str, Items] = {}

    def entries(self, job: str, files: Files) -> list[Entry]:
        """Return the manifest entries of a job's files, and fetch missing files. Raises the errors of `files`."""
        with self._lock:
            found = self._entries.get(job)
        if found is None:
            found = manifest.entries(files.manifest())
            with self._lock:
                _remember(self._entries, job, found)
        self._fetch(found, files)
        return found

    def items(self, job: str, files: Files) -> Items:
        """Return the items of a job. Its artifact contains one file, or ITEMS_FILE and files that the items name.

        Raises MissingItem and the errors of `files`.
        """
        with self._lock:
            if job in self._items:
                return self._items[job]
        of = {entry.path: entry for entry in manifest.entries(files.manifest("items")) if entry.is_file}
        listed = of.pop(ITEMS_FILE if len(of) > 1 else next(iter(of), ""), None)
        if listed is None:
            raise MissingItem(f"the artifact of items contains {len(of)} files, but no {ITEMS_FILE}")
        self._fetch([listed], files)
        with self._lock:
            return _remember(self._items, job, Items(self.cache.path(listed.sha), of))

    def open(self, entries: Sequence[Entry], files: Files, parent: str = "") -> list[int]:
        """Return a descriptor for reading each file, and fetch missing files. Raises OSError and errors of `files`.

        `parent` is the unit of another job, as JOB:UNIT, if the files belong to its result. The descriptors remain
        valid if the cache deletes the files.
        """
        self._fetch(entries, files, parent)
        opened: list[int] = []
        try:
            for entry in entries:
                opened.append(self.cache.open(entry.sha))
        except BaseException:
            close_all(opened)
            raise
        return opened

    def _fetch(self, entries: Sequence[Entry], files: Files, parent: str = "") -> None:
        by_sha = {entry.sha: entry for entry in entries if entry.is_file}

        def fetch(shas: list[str], write: Callable[[str, Iterator[bytes]], None]) -> None:
            files.fetch([by_sha[sha] for sha in shas], write, parent)

        self.cache.have(list(by_sha), fetch)


def close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _remember(known: dict[str, Input], job: str, value: Input) -> Input:
    known[job] = value
    while len(known) > MOST_JOBS:
        del known[next(iter(known))]
    return value
