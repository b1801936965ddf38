"""Read the logs of ended units from artifacts."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from coordinator.artifacts.trees import Trees
from coordinator.logs import sections
from coordinator.logs.sections import Sections
from jobs import errors
from jobs.store.artifacts import Artifacts

Stream = Literal["all", "stdout", "stderr"]
#: Start of a log's path, which ends with the unit number.
#: Suffix of the path of a list of stderr ranges.
FOLDER, LISTS = "logs/", ".streams"
#: Maximum number of cached log files (about 300 bytes each) and of cached ranges (24 bytes each).
_REMEMBERED, _DIVIDED = 100_000, 1_000_000

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """File of an artifact."""

    sha: str
    size: int


class _Cache:
    """Thread-safe cache of the most recently used values. One value is created at a time."""

    def __init__(self, most: int, size: Callable[[Any], int]) -> None:
        #: Maximum total size of the cached values, which the last value can exceed.
        #: Function that returns the size of a value.
        self._most, self._size = most, size
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._total = 0
        self._lock, self._making = threading.Lock(), threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        found: Value | None = self._found(key)
        if found is not None:
            return found
        with self._making:
            found = self._found(key)
            return self._put(key, make()) if found is None else found

    def _found(self, key: Hashable) -> Any:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def _put(self, key: Hashable, made: Value) -> Value:
        with self._lock:
            self._values[key] = made
            self._total += self._size(made)
            while self._total > self._most and len(self._values) > 1:
                _, dropped = self._values.popitem(last=False)
                self._total -= self._size(dropped)
        return made


class Texts:
    """Thread-safe reader of logs in artifacts. Each call can read the artifact store."""

    def __init__(self, trees: Trees, artifacts: Artifacts) -> None:
        self._trees = trees
        self._artifacts = artifacts
        self._logs = _Cache(_REMEMBERED, lambda places: len(places) + 1)
        self._divided = _Cache(_DIVIDED, lambda parts: len(parts[0]) + len(parts[1]) + 1)

    def size(self, tenant: str, artifact: str, unit: int) -> int:
        """Return the size of a unit's log in bytes, or 0 if it wrote nothing."""
        place = self._places(tenant, artifact).get(f"{unit}") if artifact else None
        return place.size if place else 0

    def read(
        self, tenant: str, artifact: str, unit: int, stream: Stream, start: int, limit: int
    ) -> tuple[bytes, int] | None:
        """Return bytes of a stream of a unit's log and the stream's size, or None if the unit wrote nothing.

        At most `limit` bytes are returned, and at least one if the stream has more. Raise Broken if the list of stderr
        ranges is invalid, and TooLarge if it is too long.
        """
        places = self._places(tenant, artifact)
        log = places.get(f"{unit}")
        if log is None:
            return None
        part = self._part(tenant, log, places.get(f"{unit}{LISTS}"), stream)
        groups = sections.group_ranges(part.within(start, limit))
        pieces = [data for group in groups for data in self._cut(tenant, log, group)]
        return b"".join(pieces), part.bytes

    def stderr(self, tenant: str, artifact: str, unit: int) -> Sections:
        """Return the ranges of a unit's log that were written to stderr. Raises like `read`."""
        places = self._places(tenant, artifact)
        log = places.get(f"{unit}")
        return self._part(tenant, log, places.get(f"{unit}{LISTS}"), "stderr") if log else Sections()

    def _places(self, tenant: str, artifact: str) -> Mapping[str, LogFile]:
        """Return the logs and lists of stderr ranges of an artifact, by name."""
        return self._logs.get((tenant, artifact), lambda: self._read_manifest(tenant, artifact))

    def _read_manifest(self, tenant: str, artifact: str) -> Mapping[str, LogFile]:
        [row] = self._artifacts.read(tenant, [artifact])
        if row is None:
            raise errors.NotFound(f"artifact {artifact}, which contains the log, does not exist", field="unit")
        lines = self._trees.manifest(tenant, row).decode().split("\n")[1:-1]
        beginning = (f'["f","{FOLDER}', f'["x","{FOLDER}')
        rows = (json.loads(line) for line in lines if line.startswith(beginning))
        return {path.removeprefix(FOLDER): LogFile(sha=sha, size=size) for _, path, size, sha in rows}

    def _part(self, tenant: str, log: LogFile, listed: LogFile | None, stream: Stream) -> Sections:
        if stream == "all":
            return sections.whole_log(log.size)
        if listed is None:
            return sections.whole_log(log.size if stream == "stdout" else 0)
        stdout, stderr = self._divided.get((tenant, log.sha, listed.sha), lambda: self._split(tenant, log, listed))
        return stdout if stream == "stdout" else stderr

    def _split(self, tenant: str, log: LogFile, listed: LogFile) -> tuple[Sections, Sections]:
        if listed.size > sections.MAX_LIST:
            detail = "this log switches between stdout and stderr too often to separate them; request stream=all"
            raise errors.TooLarge(detail, field="stream")
        try:
            return sections.split(self._bytes(tenant, listed, 0, listed.size), log.size)
        except ValueError as error:
            detail = f"the list of stderr ranges of this log is invalid: {error}; request stream=all"
            raise errors.Broken(detail, field="stream") from None

    def _cut(self, tenant: str, log: LogFile, group: list[tuple[int, int]]) -> list[bytes]:
        first = group[0][0]
        data = self._bytes(tenant, log, first, group[-1][1])
        return [data[lo - first : hi - first] for lo, hi in group]

    def _bytes(self, tenant: str, place: LogFile, start: int, end: int) -> bytes:
        transfers = self._trees.transfers
        return b"".join(transfers.read(tenant, place.sha, transfers.find(tenant, place.sha), start, end))
