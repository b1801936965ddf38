"""Files that a job was given: its worker may fetch those, and no other file of the job's tenant."""

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

#: Fields of the specification of a job with artifacts that it was given.
Which = Literal["files", "items"]
_FIELDS: dict[str, str] = {"files": "files", "items": "items_artifact"}
#: Artifacts whose hashes are remembered, each of at most 50,000 files: about 6 MB.
_REMEMBERED = 8


class Inputs:
    """Artifacts that jobs were given. Any thread may call."""

    def __init__(self, trees: Trees, artifacts: Artifacts) -> None:
        self._trees = trees
        self._artifacts = artifacts
        self._hashes: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()
        self._lock = threading.Lock()

    def manifest(self, lease: LeasedUnits, which: Which) -> bytes:
        """Return the manifest of what the job was given. NotFound where it was given none."""
        asked = _given(lease, which)
        if not asked:
            raise errors.NotFound(f"job {lease.job_id} was given no {which}", field="which")
        return self._manifest(lease.tenant, asked)

    def check(self, lease: LeasedUnits, shas: Iterable[str], field: str) -> None:
        """Raise Forbidden unless each of these files is one that the job was given."""
        left = set(shas)
        for which in _FIELDS:
            if left and (asked := _given(lease, which)):
                left -= self._of(lease.tenant, asked)
        if left:
            detail = f"{len(left)} of these files were not given to job {lease.job_id}, the first is {min(left)}"
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
            raise errors.NotFound(f"the artifact {artifact_id} that the job was given is gone", field="artifact")
        return self._trees.manifest(tenant, row)


def _given(lease: LeasedUnits, which: str) -> str:
    """Return the id of an artifact that the job was given; empty for none."""
    artifact_id = lease.spec.get(_FIELDS[which])
    return artifact_id if isinstance(artifact_id, str) else ""
