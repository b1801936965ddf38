"""Create, read and delete artifacts, which are trees of files."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from coordinator import locations
from coordinator.artifacts import weights
from coordinator.artifacts.blobs import Blobs, Lost, WrongStore
from coordinator.artifacts.transfers import Transfers, parse_body
from jobs import errors
from jobs.models import Actor
from jobs.settings import Settings
from jobs.store import Store, artifacts, files
from jobs.store.artifacts import Artifact, NewArtifact
from threads_protocol import manifest
from threads_protocol.manifest import Entry

log = logging.getLogger(__name__)

#: Minimum number of digits of an abbreviated artifact ID.
#: Number of digits of a full artifact ID.
SHORTEST, _WHOLE = 8, 64
_DIGITS = re.compile(r"[0-9a-f]{8,64}")
_MISSING = "ARTIFACT_URL for every coordinator, such as file:///data/artifacts (docs/artifacts.md)"


class Trees:
    """Creates, reads and deletes the artifacts of a cluster.

    Methods raise MissingSetting if ARTIFACT_URL is not set or is not this cluster's store.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._url = settings.artifact_url
        self.transfers_once_open: Transfers | None = None
        self._opening = threading.Lock()

    @property
    def is_on(self) -> bool:
        """Return True if ARTIFACT_URL is set."""
        return bool(self._url)

    @property
    def transfers(self) -> Transfers:
        """Return the object that transfers files. The first use checks that the store belongs to this cluster."""
        with self._opening:
            if self.transfers_once_open is None:
                self.transfers_once_open = Transfers(self._store.files, self._open())
            return self.transfers_once_open

    def _open(self) -> Blobs:
        if not self._url:
            raise errors.MissingSetting(f"artifacts cannot be stored; set {_MISSING}", field="ARTIFACT_URL")
        try:
            blobs = Blobs(self._url)
            blobs.check(self._store.files)
        except WrongStore as error:
            raise errors.MissingSetting(str(error), field="ARTIFACT_URL") from None
        return blobs

    # -- one artifact -----------------------------------------------------------------------------------------------

    def find(self, tenant: str, asked: str) -> Artifact:
        """Return an artifact by ID, abbreviated ID or name. Raise NotFound, or Conflict if several match."""
        ids = self._ids(tenant, asked) if _is_id(asked) else []
        if not ids and (named := self._store.artifacts.named(tenant, asked)):
            ids = [named]
        if len(ids) > 1:
            raise errors.Conflict(f"{len(ids)} artifact IDs start with {asked}; use more digits", field="artifact")
        [row] = self._store.artifacts.read(tenant, ids) or [None]
        if row is None or not (row.names or row.holders):
            detail = f"artifact {asked} does not exist; list artifacts with GET /api/artifacts"
            raise errors.NotFound(detail, field="artifact")
        return row

    def _ids(self, tenant: str, digits: str) -> list[str]:
        """Return the artifact IDs that start with these digits.

        Artifacts that only jobs hold must be requested by their full ID.
        """
        if len(digits) == _WHOLE:
            return [digits]
        return [each for each in self._store.artifacts.ids(tenant) if each.startswith(digits)]

    def commit(self, tenant: str, text: bytes, name: str, actor: Actor) -> tuple[str, Artifact]:
        """Create an artifact from a manifest. Return its status, `new` or `there`, and the artifact.

        Raise Conflict if files are missing, OverLimit if max_stored_bytes is exceeded, or the errors of
        `manifest.parse`.
        """
        if _is_id(name):
            raise errors.InvalidRequest(
                f"name: {name} could be an abbreviated artifact ID; choose another name", field="name"
            )
        before = self._store.artifacts.named(tenant, name) if name else None
        how, new = self.commit_by(tenant, text, lambda new: self._store.artifacts.commit(tenant, new, actor), name)
        if before and before != new.id:
            self._release_locations(tenant, before)
        return how, self.find(tenant, new.id)

    def _release_locations(self, tenant: str, before: str) -> None:
        """Release an unnamed artifact at all its locations on hosts, so that the artifact can be deleted."""
        [old] = self._store.artifacts.read(tenant, [before])
        if old and not old.names:
            locations.release_all(self._store.artifacts, tenant, old)

    def commit_by(
        self, tenant: str, text: bytes, commit: Callable[[NewArtifact], list[str]], name: str = ""
    ) -> tuple[str, NewArtifact]:
        """Store a manifest, and call `commit` to create a reference to it.

        Return the status from `commit` and the artifact. `commit` returns the same values as `Artifacts.commit`. If its
        status is neither `new` nor `there`, the manifest is deleted, and a status with a known error raises that error.
        """
        tree, stored = parse_body(manifest.parse, text), files.new_object()
        transfers = self.transfers
        self._store.files.begin(tenant, [stored])
        transfers.blobs.write(tenant, {stored: text})
        new = NewArtifact(
            id=tree.id,
            name=name,
            bytes=tree.bytes,
            files=tree.files,
            manifest=stored,
            manifest_bytes=len(text),
            sizes=tree.sizes,
            is_model=any(map(weights.marks_model, tree.paths)),
        )
        how, *rest = commit(new)
        if how not in ("new", "there"):
            transfers.blobs.delete([(tenant, stored)])
            if refusal := _refusal(how, rest, new, tenant):
                raise refusal
        return how, new

    def manifest(self, tenant: str, row: Artifact) -> bytes:
        """Return the manifest of an artifact. Raise Broken if the store has lost it."""
        try:
            return self.transfers.blobs.read(tenant, row.manifest, 0, row.manifest_bytes)
        except Lost:
            detail = f"the artifact store has lost the manifest of {row.id}; upload the folder again"
            raise errors.Broken(detail, field="artifact") from None

    def entries(self, tenant: str, row: Artifact) -> list[Entry]:
        """Return the manifest entries of an artifact. Raise Broken if the store has lost the manifest."""
        return manifest.entries(self.manifest(tenant, row))

    def delete(self, tenant: str, asked: str, actor: Actor, **options: Any) -> None:
        """Delete an artifact with its names and copies. Raise Conflict if the artifact is in use.

        `options` are those of `jobs.store.artifacts.Artifacts.delete`: objects that may still use the artifact.
        """
        row = self.find(tenant, asked)
        how, *rest = self._store.artifacts.delete(tenant, row.id, actor, **options)
        if how == "held":
            raise errors.Conflict(f"artifact {row.id[:12]} is held by {rest[0]}; delete that first", field="artifact")
        try:
            self.collect(tenant, row.id)
        except Exception as error:  # the leader deletes the artifact later
            log.warning("the leader will delete the artifact later: %s", error)

    # -- cleanup -------------------------------------------------------------------------------------------------------

    def collect(self, tenant: str, artifact_id: str) -> bool:
        """Delete an unused artifact and its unshared files. Raise Broken if the store has lost its manifest."""
        [row] = self._store.artifacts.read(tenant, [artifact_id])
        shas: Sequence[str] = manifest.hashes(self.manifest(tenant, row)) if row else ()
        return self._store.artifacts.collect(tenant, artifact_id, shas)


def _is_id(asked: str) -> bool:
    return bool(_DIGITS.fullmatch(asked))


def _refusal(how: str, rest: Sequence[str], new: NewArtifact, tenant: str) -> errors.ClusterError | None:
    if how == "missing":
        shas = list(new.sizes)
        first = shas[int(rest[0])]
        detail = f"{len(rest)} files are missing or have another size; upload them first. The first one is {first}"
        return errors.Conflict(detail, field="body")
    if how == "over":
        cap, most, _, stored = rest
        detail = (
            f"the artifact exceeds {cap} of tenant {tenant}, whose jobs and artifacts use {stored} of {most} bytes; "
            "delete artifacts (list them with `cluster artifact list`), or ask an administrator to raise the cap"
        )
        return errors.OverLimit(detail, field=cap, seconds=3600)
    if how == "full":
        most = f"tenant {tenant} has {artifacts.MAX_ARTIFACTS} artifacts, the maximum"
        return errors.Conflict(f"{most}; delete some first", field="body")
    return errors.Unavailable("the upload took over an hour; send it again") if how == "gone" else None
