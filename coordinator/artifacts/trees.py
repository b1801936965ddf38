"""Create, read and delete artifacts, which are trees of files."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence

from coordinator import locations
from coordinator.artifacts import weights
from coordinator.artifacts.blobs import Blobs, Lost, WrongStore
from coordinator.artifacts.transfers import Transfers, parsed
from jobs import errors
from jobs.models import Actor
from jobs.settings import Settings
from jobs.store import Store, artifacts, files
from jobs.store.artifacts import Artifact, NewArtifact
from threads_protocol import manifest
from threads_protocol.manifest import Entry

log = logging.getLogger(__name__)

#: Minimum number of digits of an abbreviated artifact id.
SHORTEST, _WHOLE = 8, 64
_DIGITS = re.compile(r"[0-9a-f]{8,64}")
_MISSING = "ARTIFACT_URL for every coordinator, such as file:///data/artifacts (docs/artifacts.md)"


class Trees:
    """Artifacts in one store. Methods raise MissingSetting if ARTIFACT_URL is not set or is another cluster's store."""

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
        """Return the file transfers. The first use checks that the store belongs to this cluster."""
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
        """Return an artifact by id, abbreviated id or name. Raise NotFound, or Conflict if several match."""
        ids = self._ids(tenant, asked) if _is_id(asked) else []
        if not ids and (named := self._store.artifacts.named(tenant, asked)):
            ids = [named]
        if len(ids) > 1:
            raise errors.Conflict(f"{len(ids)} artifacts begin with {asked}; give more of its id", field="artifact")
        [row] = self._store.artifacts.read(tenant, ids) or [None]
        if row is None or not (row.names or row.holders):
            detail = f"there is no artifact {asked}; list them with GET /api/artifacts"
            raise errors.NotFound(detail, field="artifact")
        return row

    def _ids(self, tenant: str, digits: str) -> list[str]:
        """Return the artifacts whose ids begin with these digits. Artifacts that only jobs hold need their full id."""
        if len(digits) == _WHOLE:
            return [digits]
        return [each for each in self._store.artifacts.ids(tenant) if each.startswith(digits)]

    def commit(self, tenant: str, text: bytes, name: str, actor: Actor) -> tuple[str, Artifact]:
        """Store a tree whose files are there: (new or there, artifact).

        Conflict names files that are missing; OverLimit beyond max_stored_bytes; errors as `manifest.parse`.
        """
        if _is_id(name):
            raise errors.InvalidRequest(f"name: {name} could be the beginning of an artifact's id", field="name")
        before = self._store.artifacts.named(tenant, name) if name else None
        how, new = self.commit_by(tenant, text, lambda new: self._store.artifacts.commit(tenant, new, actor), name)
        if before and before != new.id:
            self._leave_places(tenant, before)
        return how, self.find(tenant, new.id)

    def _leave_places(self, tenant: str, before: str) -> None:
        """Release an artifact without a name at all locations of hosts, which would hold it for ever."""
        [old] = self._store.artifacts.read(tenant, [before])
        if old and not old.names:
            locations.release_all(self._store.artifacts, tenant, old)

    def commit_by(
        self, tenant: str, text: bytes, commit: Callable[[NewArtifact], list[str]], name: str = ""
    ) -> tuple[str, NewArtifact]:
        """Store a manifest and have `commit`, which answers as `Artifacts.commit`, refer to it. Errors as `commit`.

        Whatever else `commit` answers is returned, and nothing is left of the manifest.
        """
        tree, stored = parsed(manifest.parse, text), files.new_object()
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
            is_model=any(map(weights.tells, tree.paths)),
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
            detail = f"the artifact store has lost the manifest of {row.id}; put the folder once more"
            raise errors.Broken(detail, field="artifact") from None

    def entries(self, tenant: str, row: Artifact) -> list[Entry]:
        """Return the paths of an artifact. Raise the errors of `manifest`."""
        return manifest.entries(self.manifest(tenant, row))

    def delete(self, tenant: str, asked: str, actor: Actor, *, beside_jobs: bool = False, name: str = "") -> None:
        """Delete an artifact with its names and places. Conflict names what else holds it.

        `beside_jobs`: jobs that hold it are no hindrance; what they need of it goes with them. `name`: where it has
        others, too, it loses this name alone.
        """
        row = self.find(tenant, asked)
        how, *rest = self._store.artifacts.delete(tenant, row.id, actor, beside_jobs=beside_jobs, name=name)
        if how == "held":
            raise errors.Conflict(f"{rest[0]} holds artifact {row.id[:12]}; delete that first", field="artifact")
        try:
            self.collect(tenant, row.id)
        except Exception as error:  # the leader does it
            log.warning("an artifact is not collected yet: %s", error)

    # -- the leader's -----------------------------------------------------------------------------------------------

    def collect(self, tenant: str, artifact_id: str) -> bool:
        """Delete an artifact without a holder, and its unshared files. Raise the errors of `manifest`."""
        [row] = self._store.artifacts.read(tenant, [artifact_id])
        shas: Sequence[str] = manifest.hashes(self.manifest(tenant, row)) if row else ()
        return self._store.artifacts.collect(tenant, artifact_id, shas)


def _is_id(asked: str) -> bool:
    return bool(_DIGITS.fullmatch(asked))


def _refusal(how: str, rest: Sequence[str], new: NewArtifact, tenant: str) -> errors.ClusterError | None:
    if how == "missing":
        shas = list(new.sizes)
        first = shas[int(rest[0])]
        detail = f"{len(rest)} files are missing or have another size, the first is {first}; upload them first"
        return errors.Conflict(detail, field="body")
    if how == "over":
        cap, most, _, stored = rest
        detail = (
            f"tenant {tenant} has no room for it within {cap}: {stored} of {most} bytes are stored of its jobs and "
            "artifacts; delete some (cluster artifact list), or have the cap raised"
        )
        return errors.OverLimit(detail, field=cap, seconds=3600)
    if how == "full":
        most = f"tenant {tenant} has {artifacts.MAX_ARTIFACTS} artifacts, as many as it may have"
        return errors.Conflict(f"{most}; delete some first", field="body")
    return errors.Unavailable("the upload took over an hour; send it again") if how == "gone" else None
