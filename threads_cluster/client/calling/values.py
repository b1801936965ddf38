"""Storage of values in the cluster: large arguments and results of calls, and values that many calls share."""

from __future__ import annotations

import json
import os
import queue
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

from threads_cluster.client.calling import pickling, project
from threads_cluster.client.calling.pickling import INLINE_BYTES, Pickled, Stream
from threads_cluster.client.calling.references import Location, Reference
from threads_cluster.client.calling.stored_values import ResultArtifact, StoredValue
from threads_cluster.errors import ApiError, BadArgument, CallFailed, ClientError, ValueNotStored
from threads_protocol import uploads
from threads_protocol.folders import MemoryTree
from threads_protocol.manifest import MAX_FILE, Entry

if TYPE_CHECKING:
    from threads_cluster.client.artifacts import Artifacts

#: Name of the file with the items of a job, as runners expect it if its artifact contains further files.
_ITEMS_FILE = "items.jsonl"
#: Maximum number of files of a call's arguments. Runners send at most 250 files with a call.
_MOST_FILES = 120


class ValueStore:
    """Values of one client in the cluster. Thread-safe."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        #: Names of the project's modules that the pickles of this client need.
        self.modules: set[str] = set()
        self.forget()
        _stores.add(self)

    def forget(self) -> None:
        """Forget all values. In a forked process, they belong to the parent process."""
        #: Artifacts of values without references, which must be deleted, and the jobs that may use them. Any
        #: thread can delete a reference.
        self._unused: queue.SimpleQueue[tuple[str, str | None]] = queue.SimpleQueue()
        #: Artifacts of values that references use.
        self._used: set[str] = set()
        #: Results of calls.
        self._results: WeakValueDictionary[str, ResultArtifact] = WeakValueDictionary()
        self._stored: WeakSet[StoredValue] = WeakSet()
        self._holding = threading.Lock()

    # -- values that calls share ---------------------------------------------------------------------------------------

    def put(self, value: Any) -> Reference:
        """Store a value, and return a reference to it. Raises ValueNotStored."""
        self.delete_unused()
        stream = self._dump(value)
        sizes, references = _sizes(stream.references), tuple(stream.references)
        if not stream.buffers and len(stream.data) <= INLINE_BYTES:
            return Reference(stream.data, sizes, lambda: None, references)
        location, contents = _locate(stream)
        sizes |= {sha: part.nbytes for sha, part in contents.items()}
        artifact = self._store("put", sizes, contents)
        self._used.add(artifact)
        return Reference(location, sizes, partial(self._unused.put, (artifact, None)), references)

    def delete_unused(self) -> None:
        """Delete values without references."""
        with suppress(queue.Empty):
            while True:
                artifact, job = self._unused.get_nowait()
                self._used.discard(artifact)
                self.delete(artifact, job)

    def close(self) -> None:
        """Delete all values, including those with references. Results that unfinished calls need remain."""
        self.delete_unused()
        while self._used:
            self.delete(self._used.pop())
        with self._holding:
            stored = list(self._stored)
        needed = {each.artifact.artifact for each in stored if each.users}
        for artifact, job in {(each.artifact.artifact, each.job_id) for each in stored}:
            if artifact not in needed:
                self.delete(artifact, job)

    def delete(self, artifact: str, job: str | None = None) -> None:
        """Delete an artifact. If `job` uses it and has not ended, the artifact is deleted with the job."""
        with suppress(ClientError, RuntimeError):  # The artifact is deleted already, or the connection is closed
            self._artifacts.delete(artifact, job=job)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def encode(self, value: Any, most: int = INLINE_BYTES) -> Pickled:
        """Pickle a value. If the pickle has more than `most` bytes, it becomes files. Raises ValueNotStored.

        Files of more than 1 MiB are uploaded now. The others are uploaded together with those of other calls.
        """
        stream = self._dump(value)
        sizes, contents, data = _sizes(stream.references), dict[str, memoryview](), stream.data
        if stream.buffers or len(data) > most:
            location, contents = _locate(stream)
            sizes |= {sha: part.nbytes for sha, part in contents.items()}
            data = pickling.dump(Reference(location, {}, lambda: None)).data
            contents = self._upload_large(contents)
        if len(sizes) > _MOST_FILES:
            raise BadArgument(
                f"a call can use at most {_MOST_FILES} references and large arrays, but this call uses {len(sizes)}; "
                "join them into fewer values"
            )
        return Pickled(text=pickling.text_of(data), sizes=sizes, contents=contents, references=stream.references)

    def _dump(self, value: Any) -> Stream:
        stream = pickling.dump(value)
        self.modules |= project.PROJECT.named_in(stream.data)
        return stream

    def _upload_large(self, contents: Mapping[str, memoryview]) -> dict[str, memoryview]:
        """Upload large files, and return copies of the others. The caller can then change the value."""
        large = {sha: part for sha, part in contents.items() if part.nbytes > uploads.SMALL}
        if large:
            with _explained(sum(part.nbytes for part in large.values())):
                self._artifacts.send(_tree({sha: part.nbytes for sha, part in large.items()}, large))
        return {sha: memoryview(bytes(part)) for sha, part in contents.items() if sha not in large}

    def store_items(self, items: Iterable[Any], pickles: Iterable[Pickled]) -> str:
        """Store the items of a job and the files that they name, and return the ID of the artifact."""
        sizes, contents = dict[str, int](), dict[str, memoryview]()
        for each in pickles:
            sizes |= each.sizes
            contents |= each.contents
        lines = b"".join(json.dumps(item).encode() + b"\n" for item in items)
        return self._store("calls", sizes, contents, lines)

    def hold(self, artifact: str, job: str) -> ResultArtifact:
        """Return the object whose lifetime keeps an artifact with results of a job."""
        with self._holding:
            held = self._results.get(artifact)
            if held is None:
                held = self._results[artifact] = ResultArtifact(artifact, partial(self._unused.put, (artifact, job)))
            return held

    def stored(
        self,
        job: str,
        unit: Mapping[str, Any],
        names: Sequence[str],
        held: ResultArtifact,
        users: Set[object],
        *,
        safe: bool,
    ) -> StoredValue:
        """Return the value of a unit that stays in the cluster until it is loaded. `users` are jobs that need it."""
        value = StoredValue(self, job, unit, names, held, users, safe=safe)
        with self._holding:
            self._stored.add(value)
        return value

    def load(self, unit: Mapping[str, Any], names: Sequence[str], *, safe: bool = False) -> Any:
        """Return the value of a unit from files with its pickle and its buffers. Raises CallFailed."""
        return pickling.join([self._read(unit, name) for name in names], safe=safe)

    def _read(self, unit: Mapping[str, Any], name: str) -> bytearray:
        entry = self.entry(unit, name)
        try:
            return self._artifacts.read(entry)
        except ApiError as error:
            raise CallFailed(f"the result of the call cannot be read: {error}") from error

    def entry(self, unit: Mapping[str, Any], name: str) -> Entry:
        """Return the entry for an output file of a unit. Raises CallFailed."""
        path = f"outputs/{unit['unit']}/{name}"
        try:
            entry = self._artifacts.entry(unit["artifact"], path)
        except ApiError as error:
            raise CallFailed(f"the result of the call cannot be read: {error}") from error
        if entry is None:
            raise CallFailed(f"the result of the call cannot be read: artifact {unit['artifact']} lacks {path}")
        return entry

    # -- artifacts -----------------------------------------------------------------------------------------------------

    def _store(
        self, what: str, sizes: Mapping[str, int], contents: Mapping[str, memoryview], items: bytes | None = None
    ) -> str:
        tree = _tree(sizes, contents)
        unique = uuid.uuid4().hex
        # An empty folder with a unique name prevents that two values share an artifact, which one of them then deletes
        tree.entries.append(Entry(kind="d", path=unique))
        if items is not None:
            sha = pickling.hash_of(memoryview(items))
            tree.entries.append(Entry(kind="f", path=_ITEMS_FILE, size=len(items), sha=sha))
            tree.contents = {**contents, sha: memoryview(items)}
        with _explained(sum(sizes.values())):
            artifact: str = self._artifacts.store(tree, name=f"{what}-{unique}")["artifact"]["artifact_id"]
        return artifact


def _sizes(references: Iterable[Reference]) -> dict[str, int]:
    return {sha: size for reference in references for sha, size in reference.sizes.items()}


def _locate(stream: Stream) -> tuple[Location, dict[str, memoryview]]:
    """Return the location of a pickle with buffers, and the contents of its files by their hashes."""
    hashes = [pickling.hash_of(part) for part in stream.parts]
    return tuple(hashes), dict(zip(hashes, stream.parts, strict=True))


def _tree(sizes: Mapping[str, int], contents: Mapping[str, memoryview]) -> MemoryTree:
    entries = [Entry(kind="f", path=sha, size=size, sha=sha) for sha, size in sizes.items()]
    return MemoryTree(entries=entries, contents=contents)


@contextmanager
def _explained(size: int) -> Iterator[None]:
    """Convert errors of an upload to errors that name the value."""
    if size > MAX_FILE:
        raise ValueNotStored(size, f"the maximum is {MAX_FILE:,} bytes")
    try:
        yield
    except ApiError as error:
        gone = (error.status, error.field) in uploads.GONE
        raise ValueNotStored(size, "its files were deleted; put the value again" if gone else str(error)) from error


_stores: WeakSet[ValueStore] = WeakSet()


def _forget_all() -> None:
    for store in list(_stores):
        store.forget()


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=_forget_all)
