"""Artifacts by tenant: file trees named by the SHA-256 of their manifests, their names and their holders.

The leader collects artifacts without holders, after reading their manifests for the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys
from jobs.store.server.functions import Part

#: Maximum number of a tenant's artifacts.
MAX_ARTIFACTS = 10_000
#: Names of artifacts. Names that could be the beginning of an id are refused, too.
NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
_NAMED = "name:"


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """Artifact without its manifest."""

    id: str
    #: Bytes of its files, counted for each path.
    bytes: int
    files: int
    #: In milliseconds of Redis' clock.
    created: int
    names: tuple[str, ...]
    #: Other holders, such as job:ID. `kept` keeps it until it is deleted.
    holders: tuple[str, ...]
    #: Object with the manifest, and its size.
    manifest: str
    manifest_bytes: int
    #: Whether one of its paths belongs to a model; None if a job stored it.
    is_model: bool | None = None


@dataclass(frozen=True, kw_only=True)
class NewArtifact:
    """Artifact to be committed."""

    id: str
    name: str
    #: Bytes and number of its files, counted for each path.
    bytes: int
    files: int
    manifest: str
    manifest_bytes: int
    #: Size of each file by its SHA-256.
    sizes: Mapping[str, int]
    #: Whether one of its paths belongs to a model.
    is_model: bool = False


class Artifacts(Part):
    """Commits, lists and deletes artifacts."""

    def commit(self, tenant: str, new: NewArtifact, actor: Actor = ANONYMOUS) -> list[str]:
        """Check that every file exists and add a reference to each, atomically, or change nothing.

        Return [new] or [there]; else [missing, index in `sizes`, ...]; [over, cap, most, seconds, stored]; [full]
        beyond MAX_ARTIFACTS; [gone] if the manifest's object is no longer unowned.
        """
        about = (new.id, new.name, new.bytes, new.files, new.manifest_bytes, new.manifest, MAX_ARTIFACTS)
        model = int(new.is_model)
        rows = (item for row in new.sizes.items() for item in row)
        return self._functions.run_acknowledged_texts("commit_artifact", tenant, *about, *actor, model, *rows)

    def hold(self, tenant: str, artifact_id: str, holder: str) -> bool:
        """Add a holder, such as job:ID. Return False if the artifact does not exist."""
        return bool(self._functions.run_acknowledged("hold_artifact", tenant, artifact_id, holder, 1))

    def let_go(self, tenant: str, artifact_id: str, holder: str) -> bool:
        """Remove a holder. Works when Redis is full."""
        return bool(self._functions.run_acknowledged("hold_artifact", tenant, artifact_id, holder, 0))

    def delete(
        self, tenant: str, artifact_id: str, actor: Actor = ANONYMOUS, *, beside_jobs: bool = False, name: str = ""
    ) -> list[str]:
        """Delete an artifact with its names and cached copies. Return [ok], [missing] or [held, holder]. Works when
        Redis is full.

        `beside_jobs`: if jobs are the only other holders, remove its names and copies; it is collected after the last
        of these jobs. `name`: if it has other names, too, remove only this one.
        """
        return self._functions.run_acknowledged_texts(
            "delete_artifact", tenant, artifact_id, *actor, int(beside_jobs), name
        )

    def ids(self, tenant: str) -> list[str]:
        """Return the ids of a tenant's artifacts, newest first."""
        return [name.decode() for name in self._client.zrevrange(keys.artifacts(tenant), 0, -1)]

    def page(self, tenant: str, after: tuple[int, str] | None, most: int) -> list[tuple[int, str]]:
        """Return artifacts as (creation, id), newest first, after the given one, which may have been deleted since."""
        first, place = "+inf" if after is None else after[0], keys.artifacts(tenant)
        found: list[tuple[int, str]] = []
        at = 0
        while len(found) < most and (rows := self._client.zrevrangebyscore(place, first, "-inf", at, most, True)):
            each = ((int(score), name.decode()) for name, score in rows)
            found += [one for one in each if after is None or one < after]
            at += len(rows)
        return found[:most]

    def named(self, tenant: str, name: str) -> str | None:
        """Return the id of the artifact with this name, or None."""
        stored = self._client.hget(keys.names(tenant), name)
        return stored.decode() if stored else None

    def names(self, tenant: str) -> dict[str, str]:
        """Return all names of a tenant and the ids of their artifacts."""
        return {name.decode(): each.decode() for name, each in self._client.hgetall(keys.names(tenant)).items()}

    def read(self, tenant: str, ids: Sequence[str]) -> list[Artifact | None]:
        """Return artifacts by id, None for those that do not exist."""
        pipe = self._pipe()
        for each in ids:
            pipe.hgetall(keys.artifact(tenant, each)).smembers(keys.holders(tenant, each))
        replies = pipe.execute()
        return [_artifact(each, *replies[2 * at : 2 * at + 2]) for at, each in enumerate(ids)]

    # -- the leader's -----------------------------------------------------------------------------------------------

    def unheld(self, most: int) -> list[tuple[str, str]]:
        """Return random artifacts without holders, as (tenant, id). Random, since some may never be collected."""
        members = (member.decode().partition("/") for member in self._client.zrandmember(keys.UNHELD, most))
        return [(tenant, artifact_id) for tenant, _, artifact_id in members]

    def collect(self, tenant: str, artifact_id: str, shas: Sequence[str]) -> bool:
        """Remove an artifact with these files, each listed once. Return False if it has a holder again, or is gone."""
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
