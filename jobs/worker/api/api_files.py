"""Files, kept output, secrets and live lines of a job over the worker API, for who holds a lease of it.

Calls are repeated by themselves while the coordinator, its Redis or its store of files is away. docs/remote-workers.md
describes them.
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
from jobs.worker.api.api_calls import Api, NotLetIn
from threads_protocol import bundles, uploads
from threads_protocol.errors import MalformedText, TooLarge
from threads_protocol.folders import Tree
from threads_protocol.manifest import Entry

log = logging.getLogger(__name__)

#: Seconds for which a call is repeated, and the longest pause between two tries.
PATIENCE_SECONDS, LONGEST_PAUSE = 60.0, 5.0
Answer = TypeVar("Answer")


class Stale(CoordinatorRejects):
    """The lease is no longer this worker's: whatever was done under it is dropped."""


class JobFiles:
    """Files of one job, for the holder of one lease of it; thread-safe.

    Raises Stale; CoordinatorRejects for what never works; NotLetIn; CoordinatorAway after `patience_seconds` in which
    a call was repeated, or once `stopped` says that nobody waits for it any more. Then the same call may be made again:
    it goes on where it was.
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

    # -- down -------------------------------------------------------------------------------------------------------

    def manifest(self, which: str = "files") -> bytes:
        """Return the manifest of the job's files, or of its `items`. `threads_protocol.manifest.entries` reads it."""
        return self._octets("GET", "manifest", which=which)

    def fetch(self, entries: Iterable[Entry], write: Callable[[str, Iterator[bytes]], None]) -> None:
        """Fetch the files among these entries of the job's manifests: `write` gets the SHA-256 and the bytes of each.

        Each distinct file comes once. Its bytes are verified before the iterator ends; else it raises CoordinatorAway.
        """
        files = {entry.sha: entry for entry in entries if entry.is_file}
        small = [sha for sha, entry in files.items() if entry.size <= uploads.SMALL]
        while small:
            fetched = self._patiently(partial(self._bundle, small[: bundles.MAX_FILES]))
            for sha, data in fetched.items():
                write(sha, iter([data]))
            small = small[len(fetched) :]
        for sha, entry in files.items():
            if entry.size > uploads.SMALL:
                write(sha, self._pieces(entry))

    def _bundle(self, shas: Sequence[str]) -> dict[str, bytes]:
        """Return the first of these files, as many as one bundle holds."""
        body = json.dumps({"hashes": shas}).encode()
        answer = self._once("POST", "file-bundle", body, seconds=uploads.STORING_SECONDS)
        try:
            files = bundles.unpack(answer)
        except MalformedText as error:
            raise self._api.away(f"the bundle that it sent is damaged: {error}") from None
        if not files or list(files) != list(shas[: len(files)]):
            raise self._api.away("it sends other files than were asked for")
        return files

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        made = hashlib.sha256()
        for start in range(0, entry.size, PART_BYTES):
            last = min(start + PART_BYTES, entry.size) - 1
            piece = self._octets("GET", f"files/{entry.sha}", range=f"{start}-{last}", seconds=uploads.STORING_SECONDS)
            if len(piece) != last - start + 1:
                raise self._api.away(f"it sends {len(piece)} bytes of the file {entry.sha} where others were asked for")
            made.update(piece)
            yield piece
        if made.hexdigest() != entry.sha:
            raise self._api.away(f"the bytes that it sent of the file {entry.sha} are not those of its hash")

    # -- up ---------------------------------------------------------------------------------------------------------

    def keep(self, folder: Path, units: Sequence[int]) -> str:
        """Upload a folder as an artifact that is kept as long as the job, as what these units left; return its id.

        No link is followed; those that lead out of the folder, sockets and names that are no UTF-8 are left out.
        """
        try:
            tree = folders.scan(folder)
        except (OSError, TooLarge) as error:
            raise CoordinatorRejects(f"what the program left cannot be kept: {error}") from None
        if tree.left_out:
            log.warning("%d paths are not kept, the first is %s", len(tree.left_out), tree.left_out[0])
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
        """Return which of these files are to be sent."""
        body = json.dumps({"hashes": hashes}).encode()
        answer: dict[str, Any] = json.loads(self.send("POST", "missing-files", body, uploads.STORING_SECONDS))
        return answer

    def send(self, method: str, path: str, body: bytes | None, seconds: float, **query: int) -> bytes:
        """Make one call of an upload."""
        return self._octets(method, path, body, seconds=seconds, **query)

    # -- secrets and live lines -------------------------------------------------------------------------------------

    def secrets(self) -> dict[str, str]:
        """Return the values of the job's secrets by name. CoordinatorRejects names those that are missing."""
        return dict(self._patiently(lambda: self._call("secrets", {}))["values"])

    def output(self, unit: int, attempt: int, offset: int, chunks: Sequence[tuple[str, bytes]]) -> bool:
        """Pass on what a unit has written, from a place in its output on; False: nobody follows this unit.

        A chunk is ("o", bytes) of stdout, or ("e", bytes) of stderr; of over MOST_CHUNKS, several go as one. They are
        sent once: what is lost is in the log.
        """
        rows = [[stream, base64.b64encode(data).decode()] for stream, data in _fewer(chunks)]
        body = {"unit": unit, "attempt": attempt, "offset": offset, "chunks": rows}
        return bool(self._call("output", body)["follow"])

    def replica(self, **fields: str | int) -> None:
        """Say in which state a replica of a service is, and where it answers. Sent once: it is said again soon."""
        self._call("replica", fields)

    def lead(self) -> dict[str, Any]:
        """Return which replica of the service leads (`leads`: this one), its `state`, `address`, `port` and `key`."""
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
            except NotLetIn:
                raise
            except CoordinatorAway as error:
                growing = min(LONGEST_PAUSE, max(error.pause_seconds, 2 * growing))
                if self._stopped() or time.monotonic() + growing > until:
                    raise
                if not said:
                    log.warning("files of job %s: %s; trying again", self._job, error)
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
    """Return units as a text such as 3-17,20."""
    runs: list[list[int]] = []
    for unit in sorted(set(units)):
        if runs and runs[-1][1] == unit - 1:
            runs[-1][1] = unit
        else:
            runs.append([unit, unit])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def _fewer(chunks: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Return the same bytes in at most MOST_CHUNKS chunks, each of the stream of its first byte."""
    size = -(-len(chunks) // MOST_CHUNKS)
    groups = (chunks[at : at + size] for at in range(0, len(chunks), size or 1))
    return [(group[0][0], b"".join(data for _, data in group)) for group in groups]
