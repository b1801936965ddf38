"""Results of calls that stay in the cluster until the user requests them or a runner needs them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from threads_cluster.client.calling.references import Reference
from threads_cluster.errors import CallFailed

if TYPE_CHECKING:
    from threads_cluster.client.calling.values import ValueStore
    from threads_protocol.manifest import Entry


class ResultArtifact:
    """Artifact with large values of some units. It is deleted when the last reference to this object is deleted."""

    def __init__(self, artifact: str, delete: Callable[[], None]) -> None:
        self.artifact = artifact
        weakref.finalize(self, delete).atexit = False


class StoredValue:
    """Value of a unit as files in the cluster: its pickle, and its buffers. Thread-safe."""

    def __init__(
        self,
        values: ValueStore,
        job_id: str,
        unit: Mapping[str, Any],
        names: Sequence[str],
        artifact: ResultArtifact,
        users: Set[object],
        *,
        safe: bool,
    ) -> None:
        """`names` are output files of the unit, and `users` are jobs whose calls need the value."""
        self.values, self.job_id, self.artifact = values, job_id, artifact
        self._unit, self._names, self._safe = unit, names, safe
        #: Jobs whose calls need the value.
        self.users = users
        self._loading = threading.Lock()
        self._loaded: tuple[Any] | None = None

    def load(self) -> Any:
        """Return the value. It is downloaded once. Raises CallFailed, and any error of its pickle."""
        with self._loading:
            if self._loaded is None:
                try:
                    self._loaded = (self.values.load(self._unit, self._names, safe=self._safe),)
                except RuntimeError as error:
                    raise CallFailed(
                        f"the result of the call cannot be read: {error}; call result() before the Cluster is closed"
                    ) from error
            return self._loaded[0]

    def disown(self) -> None:
        """Prepare for use in a forked process. At the fork, another thread could have held the lock."""
        self._loading = threading.Lock()

    def reference(self) -> Reference:
        """Return a reference, with which calls receive the value from the cluster. Raises CallFailed."""
        entries: list[Entry] = [self.values.entry(self._unit, name) for name in self._names]
        sizes = {entry.sha: entry.size for entry in entries}
        return Reference(tuple(entry.sha for entry in entries), sizes, lambda: None)
