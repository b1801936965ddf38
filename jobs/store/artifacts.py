"""Artifacts of tenants: trees of files, identified by the SHA-256 of their manifests.

The leader deletes artifacts without holders, after it has read the file list in their manifests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys
from jobs.store.server.functions import Part

#: Maximum number of artifacts per tenant.
MAX_ARTIFACTS = 10_000
#: Pattern of artifact names. Texts that could be the start of an artifact ID are not valid names.
NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
_NAMED = "name:"


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """An artifact's record, without its manifest."""

    id: str
    #: Total size in bytes of the files. A file with several paths counts once for each path.
    bytes: int
    files: int
    #: Creation time in milliseconds since 1970, by Redis time.
    created: int
    names: tuple[str, ...]
    #: Objects that keep the artifact, such as job:ID. The holder `kept` keeps it until a user deletes it.
    holders: tuple[str, ...]
    #: Storage object that contains the manifest.
    manifest: str
    #: Size of the manifest in bytes.
    manifest_bytes: int
    #: True if a path of the artifact belongs to a model, or None if a job stored the artifact.
    is_model: bool | None = None


@dataclass(frozen=True, kw_only=True)
class NewArtifact:
    """Artifact that a client has uploaded and wants to commit."""

    id: str
    name: str
    #: Total size in bytes and number of the files. A file with several paths counts once for each path.
    bytes: int
    files: int
    manifest: str
    manifest_bytes: int
    #: Sizes of the files in bytes, keyed by SHA-256.
    sizes: Mapping[str, int]
    #: True if a path of the artifact belongs to a model.
    is_model: bool = False


class Artifacts(Part):
    """Stores, lists and deletes the records of artifacts in Redis."""

    def commit(self, tenant: str, new: NewArtifact, actor: Actor = ANONYMOUS) -> list[str]:
        """Store an artifact if all of its files exist. Otherwise, change nothing.

        Return [new] or [there]; otherwise [missing, index in `sizes`, ...], [over, cap, most, seconds, stored], [full]
        beyond MAX_ARTIFACTS, or [gone] if the manifest's object is no longer unowned.
        """
        about = (new.id, new.name, new.bytes, new.files, new.manifest_bytes, new.manifest, MAX_ARTIFACTS)
        model = int(new.is_model)
        rows = (item for row in new.sizes.items() for item in row)
        return self._functions.run_acknowledged_texts("commit_artifact", tenant, *about, *actor, model, *rows)

    def hold(self, tenant: str, artifact_id: str, holder: str) -> bool:
        """Keep an artifact for a holder, such as job:ID. Return False if the artifact does not exist."""
        return bool(self._functions.run_acknowledged("hold_artifact", tenant, artifact_id, holder, 1))

    def let_go(self, tenant: str, artifact_id: str, holder: str) -> bool:
        """Remove a holder of an artifact. This also works if Redis is full."""
        return bool(self._functions.run_acknowledged("hold_artifact", tenant, artifact_id, holder, 0))

    def delete(
        self,
        tenant: str,
        artifact_id: str,
        actor: Actor = ANONYMOUS,
        *,
        beside_jobs: bool = False,
        name: str = "",
        job: str = "",
    ) -> list[str]:
        """Delete an artifact, its names and its cached copies. Return [ok], [missing] or [held, holder].

        This also works when Redis is full. With `beside_jobs`, an artifact that only jobs still hold loses its names
        and copies, and is deleted after the last of these jobs. With `name`, if the artifact has other names, remove
        only this name. If `job` holds the artifact, the job releases it, or keeps it until it ends.
        """
        return self._functions.run_acknowledged_texts(
            "delete_artifact", tenant, artifact_id, *actor, int(beside_jobs), name, job
        )

    def ids(self, tenant: str) -> list[str]:
        """Return the IDs of a tenant's artifacts, newest first."""
        return [name.decode() for name in self._client.zrevrange(keys.artifacts(tenant), 0, -1)]

    def page(self, tenant: str, after: tuple[int, str] | None, most: int) -> list[tuple[int, str]]:
        """Return one page of a tenant's artifacts as (creation time, ID), newest first.

        `after` is the last artifact of the previous page.
        """
        first, place = "+inf" if after is None else after[0], keys.artifacts(tenant)
        found: list[tuple[int, str]] = []
        at = 0
        while len(found) < most and (rows := self._client.zrevrangebyscore(place, first, "-inf", at, most, True)):
            each = ((int(score), name.decode()) for name, score in rows)
            found += [one for one in each if after is None or one < after]
            at += len(rows)
        return found[:most]

    def named(self, tenant: str, name: str) -> str | None:
        """Return the ID of the tenant's artifact with this name, or None if there is none."""
        stored = self._client.hget(keys.names(tenant), name)
        return stored.decode() if stored else None

    def names(self, tenant: str) -> dict[str, str]:
        """Return all artifact names of a tenant, with the IDs of the artifacts."""
        return {name.decode(): each.decode() for name, each in self._client.hgetall(keys.names(tenant)).items()}

    def read(self, tenant: str, ids: Sequence[str]) -> list[Artifact | None]:
        """Return artifacts by their IDs. The entry of an artifact that does not exist is None."""
        pipe = self._pipe()
        for each in ids:
            pipe.hgetall(keys.artifact(tenant, each)).smembers(keys.holders(tenant, each))
        replies = pipe.execute()
        return [_artifact(each, *replies[2 * at : 2 * at + 2]) for at, each in enumerate(ids)]

    # -- leader methods --------------------------------------------------------------------------------------------

    def unheld(self, most: int) -> list[tuple[str, str]]:
        """Return a random selection of artifacts without holders, as (tenant, ID).

        The selection is random, because some artifacts can never be deleted.
        """
        members = (member.decode().partition("/") for member in self._client.zrandmember(keys.UNHELD, most))
        return [(tenant, artifact_id) for tenant, _, artifact_id in members]

    def collect(self, tenant: str, artifact_id: str, shas: Sequence[str]) -> bool:
        """Delete an artifact that has no holder, and release its files. Return False if it has one or does not
        exist.
        """
        return bool(self._functions.run("collect_artifact", tenant, artifact_id, *shas))


def _artifact(artifact_id: str, row: Mapping[bytes, bytes], holders: Sequence[bytes]) -> Artifact | None:
    if b"manifest" not in row:
        return None
    texts = sorted(holder.decode() for holder in holders)
    return Artifact(
        id=artifact_id,
        bytes=int(row[b"bytes"]),
        files=int(row[b"files"]),
        created=int(row[b"created"]),
        names=tuple(text.removeprefix(_NAMED) for text in texts if text.startswith(_NAMED)),
        holders=tuple(text for text in texts if not text.startswith(_NAMED)),
        manifest=row[b"manifest"].decode(),
        manifest_bytes=int(row[b"manifest_bytes"]),
        is_model={b"1": True, b"0": False}.get(row.get(b"model", b"")),
    )
