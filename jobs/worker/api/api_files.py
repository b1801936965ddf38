"""Client of the worker API for a job's files, stored output, secrets and live output. Requires a lease of the job.

Calls are retried while the coordinator, its Redis or its file store is unavailable. docs/remote-workers.md describes
the calls.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from jobs.store.files import PART_BYTES
from jobs.store.server.connection import CoordinatorAway, CoordinatorRejects
from jobs.store.work.live_output import MOST_CHUNKS
from jobs.worker.api import folders
from jobs.worker.api.api_calls import AccessDenied, Api
from threads_protocol import bundles, uploads
from threads_protocol.errors import MalformedText, TooLarge
from threads_protocol.folders import Tree
from threads_protocol.manifest import Entry

log = logging.getLogger(__name__)

#: Time limit in seconds for retries of a call.
#: `LONGEST_PAUSE` is the maximum delay in seconds between two attempts.
PATIENCE_SECONDS, LONGEST_PAUSE = 60.0, 5.0
#: Maximum number of units in one request for results.
_MOST_RESULTS = 100
Answer = TypeVar("Answer")


class Stale(CoordinatorRejects):
    """The lease no longer belongs to this worker, so its results must be dropped."""


class JobFiles:
    """Files of one job, accessed with one of its leases. Thread-safe.

    Raises Stale and AccessDenied; CoordinatorRejects if retries cannot succeed; and CoordinatorAway after
    `patience_seconds` of retries or when `stopped` returns True. After CoordinatorAway, the same call can be made again
    and continues there.
    """

    def __init__(
        self,
        api: Api,
        job: str,
        lease: str,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._api = api
        self._job = job
        self._lease = lease
        self._patience_seconds = patience_seconds
        self._stopped = stopped

    # -- downloads -------------------------------------------------------------------------------------------------

    def manifest(self, which: str = "files") -> bytes:
        """Return the manifest of the job's files, or of its `items`. `threads_protocol.manifest.entries` parses it."""
        return self._octets("GET", "manifest", which=which)

    def results(self, units: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
        """Return the results of units of jobs on which the job depends. A unit is a job and a number.

        A result consists of its `value` and its `files`, each as [path, bytes, SHA-256]. `fetch` downloads these files.
        """
        found: list[dict[str, Any]] = []
        for first in range(0, len(units), _MOST_RESULTS):
            wanted = [{"job": job, "unit": unit} for job, unit in units[first : first + _MOST_RESULTS]]
            body = json.dumps({"units": wanted}).encode()
            answer = self._octets("POST", "results", body, seconds=uploads.STORING_SECONDS)
            found += json.loads(answer)["results"]
        return found

    def fetch(self, entries: Iterable[Entry], write: Callable[[str, Iterator[bytes]], None], parent: str = "") -> None:
        """Download the files of these manifest entries. `write` receives the SHA-256 and the content of each.

        Files of a result of another job need this unit in `parent`, as JOB:UNIT. Each distinct file is downloaded once.
        The content is verified before its iterator ends; if it is wrong, the iterator raises CoordinatorAway.
        """
        query = {"parent": parent} if parent else {}
        files = {entry.sha: entry for entry in entries if entry.is_file}
        small = [sha for sha, entry in files.items() if entry.size <= uploads.SMALL]
        while small:
            fetched = self._patiently(partial(self._bundle, small[: bundles.MAX_FILES], query))
            for sha, data in fetched.items():
                write(sha, iter([data]))
            small = small[len(fetched) :]
        for sha, entry in files.items():
            if entry.size > uploads.SMALL:
                write(sha, self._pieces(entry, query))

    def _bundle(self, shas: Sequence[str], query: dict[str, str]) -> dict[str, bytes]:
        """Download the first of these files, as many as one bundle can contain, and return their content by hash."""
        body = json.dumps({"hashes": shas}).encode()
        answer = self._once("POST", "file-bundle", body, seconds=uploads.STORING_SECONDS, **query)
        try:
            files = bundles.unpack(answer)
        except MalformedText as error:
            raise self._api.away(f"the response contains a damaged bundle: {error}") from None
        if not files or list(files) != list(shas[: len(files)]):
            raise self._api.away("the response contains other files than the requested ones")
        return files

    def _pieces(self, entry: Entry, query: dict[str, str]) -> Iterator[bytes]:
        made = hashlib.sha256()
        for start in range(0, entry.size, PART_BYTES):
            last = min(start + PART_BYTES, entry.size) - 1
            how: dict[str, Any] = {"range": f"{start}-{last}", "seconds": uploads.STORING_SECONDS, **query}
            piece = self._octets("GET", f"files/{entry.sha}", **how)
            if len(piece) != last - start + 1:
                raise self._api.away(
                    f"the response has {len(piece)} bytes of the file {entry.sha} instead of the requested range"
                )
            made.update(piece)
            yield piece
        if made.hexdigest() != entry.sha:
            raise self._api.away(f"the received content of the file {entry.sha} does not match the hash")

    # -- uploads ---------------------------------------------------------------------------------------------------

    def keep(self, folder: Path, units: Sequence[int]) -> str:
        """Upload a folder as the output of these units, and return the ID of the artifact.

        The artifact is kept as long as the job. Links are not followed. Links that lead outside the folder, sockets and
        names that are not UTF-8 are skipped.
        """
        try:
            tree = folders.scan(folder)
        except (OSError, TooLarge) as error:
            raise CoordinatorRejects(f"cannot store the program's output folder: {error}") from None
        if tree.left_out:
            log.warning(
                "skipped %d paths of the output folder; the first one is %s", len(tree.left_out), tree.left_out[0]
            )
        text = tree.manifest
        for attempt in range(uploads.ATTEMPTS):
            try:
                self._send_missing(tree)
                answer = self._octets("POST", "artifacts", text, seconds=uploads.STORING_SECONDS, units=ranges(units))
                return str(json.loads(answer)["artifact_id"])
            except CoordinatorRejects as error:
                if (error.status, error.field) not in uploads.GONE or attempt == uploads.ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _send_missing(self, tree: Tree) -> None:
        try:
            for _ in uploads.Upload(tree, self).send():
                pass
        except uploads.Unsendable as error:
            raise CoordinatorRejects(str(error)) from None

    def missing(self, hashes: Sequence[str]) -> dict[str, Any]:
        """Return the hashes of the files that the cluster does not have yet."""
        body = json.dumps({"hashes": hashes}).encode()
        answer: dict[str, Any] = json.loads(self.send("POST", "missing-files", body, uploads.STORING_SECONDS))
        return answer

    def send(self, method: str, path: str, body: bytes | None, seconds: float, **query: int) -> bytes:
        """Send one request of an upload, with retries."""
        return self._octets(method, path, body, seconds=seconds, **query)

    # -- secrets and live output -----------------------------------------------------------------------------------

    def secrets(self) -> dict[str, str]:
        """Return the values of the job's secrets by name. Raises CoordinatorRejects, which names missing secrets."""
        return dict(self._patiently(lambda: self._call("secrets", {}))["values"])

    def output(self, unit: int, attempt: int, offset: int, chunks: Sequence[tuple[str, bytes]]) -> bool:
        """Send live output of a unit that starts at an offset. Return False if no client follows this unit.

        A chunk is ("o", bytes) of stdout or ("e", bytes) of stderr. Beyond MOST_CHUNKS, adjacent chunks are joined.
        Chunks are sent only once, because the log contains lost ones.
        """
        rows = [[stream, base64.b64encode(data).decode()] for stream, data in _join_chunks(chunks)]
        body = {"unit": unit, "attempt": attempt, "offset": offset, "chunks": rows}
        return bool(self._call("output", body)["follow"])

    def replica(self, **fields: str | int) -> None:
        """Report the state and the address of a service's replica once, because the next report follows soon."""
        self._call("replica", fields)

    def lead(self) -> dict[str, Any]:
        """Return the leading replica: `leads` (True for this replica), `state`, `address`, `port` and `key`."""
        return self._patiently(lambda: self._call("lead", {}))

    # -- calls ------------------------------------------------------------------------------------------------------

    def _call(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        with _stale_leases_known():
            return self._api.call(f"jobs/{self._job}/{name}", {"lease": self._lease, **body})

    def _octets(self, method: str, path: str, body: bytes | None = None, **how: Any) -> bytes:
        return self._patiently(lambda: self._once(method, path, body, **how))

    def _once(
        self, method: str, path: str, body: bytes | None = None, *, range: str = "", seconds: float = 0.0, **query: Any
    ) -> bytes:
        asked = "".join(f"&{name}={value}" for name, value in query.items())
        place = f"jobs/{self._job}/{path}?lease={self._lease}{asked}"
        with _stale_leases_known():
            return self._api.octets(method, place, body, range=range, seconds=seconds)

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        until = time.monotonic() + self._patience_seconds
        growing, said = 0.0, False
        while True:
            try:
                return call()
            except AccessDenied:
                raise
            except CoordinatorAway as error:
                growing = min(LONGEST_PAUSE, max(error.pause_seconds, 2 * growing))
                if self._stopped() or time.monotonic() + growing > until:
                    raise
                if not said:
                    log.warning("cannot transfer files of job %s, retrying: %s", self._job, error)
                    said = True
                time.sleep(growing)


@contextmanager
def _stale_leases_known() -> Iterator[None]:
    try:
        yield
    except CoordinatorRejects as error:
        if error.status == 409 and error.field == "lease":
            raise Stale(str(error), error.status, error.field) from None
        raise


def ranges(units: Sequence[int]) -> str:
    """Format unit numbers as ranges, such as 3-17,20."""
    runs: list[list[int]] = []
    for unit in sorted(set(units)):
        if runs and runs[-1][1] == unit - 1:
            runs[-1][1] = unit
        else:
            runs.append([unit, unit])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def _join_chunks(chunks: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Join chunks of output so that at most MOST_CHUNKS remain. A joined chunk has the stream of its first byte."""
    size = -(-len(chunks) // MOST_CHUNKS)
    groups = (chunks[at : at + size] for at in range(0, len(chunks), size or 1))
    return [(group[0][0], b"".join(data for _, data in group)) for group in groups]
