"""Thread of a coordinator that, while it leads, collects what nobody holds and deletes bytes that are no file's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from coordinator.artifacts.trees import Trees
from jobs import errors
from jobs.store import Store, connection

log = logging.getLogger(__name__)

ROUND_SECONDS = 10.0
#: Artifacts that one round looks at, and calls that condemn, at most.
_ARTIFACTS, _REPEATS = 100, 20
#: Objects that cannot be deleted, after which a round ends.
_TROUBLES = 10


class Collector(threading.Thread):
    """Does a round each ROUND_SECONDS. Apart from the leader's own thread: a slow store must not delay that one."""

    def __init__(self, store: Store, trees: Trees, leads: Callable[[], bool]) -> None:
        super().__init__(name="artifact-collector", daemon=True)
        self._store = store
        self._trees = trees
        self._leads = leads
        self._ended = threading.Event()
        self._trouble = ""

    def run(self) -> None:
        """Do rounds until stopped, whatever fails; log once what goes wrong until it works again."""
        while self._trees.is_on and not self._ended.wait(ROUND_SECONDS):
            trouble = ""
            try:
                if self._leads():
                    self.round()
            except (*connection.Unreachable, errors.ClusterError) as error:
                trouble = str(error)
            except Exception as error:
                trouble = f"{type(error).__name__}: {error}"
            if trouble and trouble != self._trouble:
                log.warning("artifacts were not collected: %s", trouble)
            self._trouble = trouble

    def round(self) -> None:
        """Collect artifacts that nobody holds; delete bytes whose time is over. Raises the first trouble at the end."""
        troubles: list[Exception] = []
        for tenant, artifact_id in self._store.artifacts.unheld(_ARTIFACTS):
            try:
                self._trees.collect(tenant, artifact_id)
            except connection.Unreachable:
                raise
            except Exception as error:  # what is lost of one must not keep the others
                troubles.append(error)
        for _ in range(_REPEATS):
            doomed = self._store.files.condemn()
            deleted = self._deleted(doomed, troubles)
            self._store.files.forget(deleted)
            if not deleted:
                break
        if troubles:
            raise troubles[0]

    def _deleted(self, doomed: list[tuple[str, str]], troubles: list[Exception]) -> list[tuple[str, str]]:
        """Delete the bytes of objects, until too many cannot be; return the objects of which they are gone."""
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

    def stop(self) -> None:
        """End after what is being done."""
        self._ended.set()
