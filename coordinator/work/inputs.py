"""Check access to input files. A job's worker can download the job's input files, but no other files of the tenant."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Literal

from coordinator.artifacts.trees import Trees
from jobs import errors
from jobs.store.artifacts import Artifact, Artifacts
from jobs.store.work.outputs import LeasedUnits
from threads_protocol import manifest

#: Kinds of input artifacts that a job specification can name.
Which = Literal["files", "items"]
_FIELDS: dict[str, str] = {"files": "files", "items": "items_artifact"}
#: Maximum number of artifacts whose file hashes are cached. With 50,000 files each, the hashes need about 6 MB.
_REMEMBERED = 8


class Inputs:
    """Reads the input artifacts of jobs. Thread-safe."""

    def __init__(self, trees: Trees, artifacts: Artifacts) -> None:
        self._trees = trees
        self._artifacts = artifacts
        self._hashes: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()
        self._lock = threading.Lock()

    def manifest(self, lease: LeasedUnits, which: Which) -> bytes:
        """Return the manifest of an input artifact. Raises NotFound if the job has none."""
        asked = _artifact_id(lease, which)
        if not asked:
            raise errors.NotFound(f"job {lease.job_id} has no input {which}", field="which")
        return self._manifest(lease.tenant, asked)

    def check(self, lease: LeasedUnits, shas: Iterable[str], field: str, others: Iterable[str] = ()) -> None:
        """Raise Forbidden unless each file belongs to an input artifact of the job, or is one of the `others`."""
        left = set(shas).difference(others)
        for which in _FIELDS:
            if left and (asked := _artifact_id(lease, which)):
                left -= self._of(lease.tenant, asked)
        if left:
            detail = f"{len(left)} files are not input files of job {lease.job_id}; the first is {min(left)}"
            raise errors.Forbidden(detail, field=field)

    def _of(self, tenant: str, artifact_id: str) -> frozenset[str]:
        with self._lock:
            known = self._hashes.get((tenant, artifact_id))
            if known is not None:
                self._hashes.move_to_end((tenant, artifact_id))
                return known
        read = frozenset(manifest.hashes(self._manifest(tenant, artifact_id)))
        with self._lock:
            self._hashes[tenant, artifact_id] = read
            while len(self._hashes) > _REMEMBERED:
                self._hashes.popitem(last=False)
        return read

    def _manifest(self, tenant: str, artifact_id: str) -> bytes:
        row: Artifact | None
        [row] = self._artifacts.read(tenant, [artifact_id])
        if row is None:
            raise errors.NotFound(f"input artifact {artifact_id} was deleted", field="artifact")
        return self._trees.manifest(tenant, row)


def _artifact_id(lease: LeasedUnits, which: str) -> str:
    """Return the ID of an input artifact of the job, or an empty string if it has none."""
    artifact_id = lease.spec.get(_FIELDS[which])
    return artifact_id if isinstance(artifact_id, str) else ""
