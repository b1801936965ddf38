"""Leader task that deletes unused artifacts, and stored objects that belong to no file."""

from __future__ import annotations

from coordinator.artifacts.trees import Trees
from jobs import errors
from jobs.store import Store
from jobs.store.server import connection

#: Interval in seconds between two runs.
INTERVAL_SECONDS = 10.0
#: Maximum number of artifacts to check per run.
#: Maximum number of deleted batches of objects per run.
_ARTIFACTS, _REPEATS = 100, 20
#: Number of failed deletions after which a run stops.
_TROUBLES = 10


class ArtifactCleanupTask:
    """Deletes unused artifacts. Uses its own thread, because a slow store must not delay the leader's checks."""

    def __init__(self, store: Store, trees: Trees) -> None:
        self._store = store
        self._trees = trees

    def run_once(self) -> None:
        """Delete unused artifacts and expired objects. Afterward, raise the first error, if any."""
        troubles: list[Exception] = []
        for tenant, artifact_id in self._store.artifacts.unheld(_ARTIFACTS):
            try:
                self._trees.collect(tenant, artifact_id)
            except connection.Unreachable:
                raise
            except Exception as error:  # one broken artifact must not block the others
                troubles.append(error)
        for _ in range(_REPEATS):
            doomed = self._store.files.condemn()
            deleted = self._delete(doomed, troubles)
            self._store.files.forget(deleted)
            if not deleted:
                break
        if troubles:
            raise troubles[0]

    def _delete(self, doomed: list[tuple[str, str]], troubles: list[Exception]) -> list[tuple[str, str]]:
        """Delete objects until too many deletions fail. Return the deleted objects."""
        deleted, most = [], len(troubles) + _TROUBLES
        for each in doomed:
            try:
                self._trees.transfers.blobs.delete([each])
                deleted.append(each)
            except errors.ClusterError as error:
                troubles.append(error)
                if len(troubles) >= most:
                    break
        return deleted
