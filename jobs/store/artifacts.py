"""Artifacts, by tenant: trees of files under the SHA-256 of their manifest, names, and what holds each.

An artifact that nothing holds any more is collected by the leader, which reads its manifest for the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys
from jobs.store.server.functions import Part

#: Most artifacts of a tenant.
MAX_ARTIFACTS = 10_000
#: Names of artifacts; one that could be the beginning of an id is refused besides.
NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
_NAMED = "name:"


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """Artifact without its manifest."""

    id: str
    #: Bytes of its files, each path counted.
    bytes: int
    files: int
    #: In milliseconds of Redis' clock.
    created: int
    names: tuple[str, ...]
    #: What else holds it, such as job:ID; kept: it stays until it is deleted.
    holders: tuple[str, ...]
    #: Object that has the manifest, and its size.
    manifest: str
    manifest_bytes: int
    #: A path of it is one of a model's; None: a job stored it.
    is_model: bool | None = None


@dataclass(frozen=True, kw_only=True)
class NewArtifact:
    """Artifact that is to be committed."""

    id: str
    name: str
    #: Bytes and number of its files, each path counted.
    bytes: int
    files: int
    manifest: str
    manifest_bytes: int
    #: Size of each file by its SHA-256.
    sizes: Mapping[str, int]
    #: A path of it is one of a model's.
    is_model: bool = False


class Artifacts(Part):
    """Commits, lists and deletes artifacts."""

    def commit(self, tenant: str, new: NewArtifact, actor: Actor = ANONYMOUS) -> list[str]:
        """Verify that every file is there and refer to it, all in one step, or change nothing.

        Answers [new] or [there]; else [missing, number of a file in `sizes`, ...]; [over, cap, most, seconds, stored];
        [full], beyond MAX_ARTIFACTS; [gone]: the manifest's object is not unowned any more.
        """
        about = (new.id, new.name, new.bytes, new.files, new.manifest_bytes, new.manifest, MAX_ARTIFACTS)
        model = int(new.is_model)
        rows = (item for row in new.sizes.items() for item in row)
        return self._functions.kept_words("commit_artifact", tenant, *about, *actor, model, *rows)

    def hold(self, tenant: str, artifact_id: str, holder: str) -> bool:
        """Keep an artifact for a holder, such as job:ID; False when there is none."""
        return bool(self._functions.kept("hold_artifact", tenant, artifact_id, holder, 1))

    def let_go(self, tenant: str, artifact_id: str, holder: str) -> bool:
        """End what `hold` began. Works in a full Redis."""
        return bool(self._functions.kept("hold_artifact", tenant, artifact_id, holder, 0))

    def delete(
        self, tenant: str, artifact_id: str, actor: Actor = ANONYMOUS, *, beside_jobs: bool = False, name: str = ""
    ) -> list[str]:
        """Delete an artifact with its names and places: [ok]; else [missing]; [held, by whom]. Works in a full Redis.

        `beside_jobs`: what only jobs hold besides loses its names and places, and goes with the last of these jobs.
        `name`: where it has others, too, it loses this name alone.
        """
        return self._functions.kept_words("delete_artifact", tenant, artifact_id, *actor, int(beside_jobs), name)

    def ids(self, tenant: str) -> list[str]:
        """Return the ids of a tenant's artifacts, newest first."""
        return [name.decode() for name in self._client.zrevrange(keys.artifacts(tenant), 0, -1)]

    def page(self, tenant: str, after: tuple[int, str] | None, most: int) -> list[tuple[int, str]]:
        """Return artifacts as (when they were put, id), newest first, those behind one that may be gone meanwhile."""
        first, place = "+inf" if after is None else after[0], keys.artifacts(tenant)
        found: list[tuple[int, str]] = []
        at = 0
        while len(found) < most and (rows := self._client.zrevrangebyscore(place, first, "-inf", at, most, True)):
            each = ((int(score), name.decode()) for name, score in rows)
            found += [one for one in each if after is None or one < after]
            at += len(rows)
        return found[:most]

    def named(self, tenant: str, name: str) -> str | None:
        """Return the id of the artifact that a name points to; None for a name that there is not."""
        stored = self._client.hget(keys.names(tenant), name)
        return stored.decode() if stored else None

    def names(self, tenant: str) -> dict[str, str]:
        """Return all names of a tenant, each with the id of the artifact that it points to."""
        return {name.decode(): each.decode() for name, each in self._client.hgetall(keys.names(tenant)).items()}

    def read(self, tenant: str, ids: Sequence[str]) -> list[Artifact | None]:
        """Return artifacts by their ids; None in the place of one that there is not."""
        pipe = self._pipe()
        for each in ids:
            pipe.hgetall(keys.artifact(tenant, each)).smembers(keys.holders(tenant, each))
        replies = pipe.execute()
        return [_artifact(each, *replies[2 * at : 2 * at + 2]) for at, each in enumerate(ids)]

    # -- the leader's -----------------------------------------------------------------------------------------------

    def unheld(self, most: int) -> list[tuple[str, str]]:
        """Return artifacts that nobody holds, as (tenant, id): any of them, since some may never be collected."""
        members = (member.decode().partition("/") for member in self._client.zrandmember(keys.UNHELD, most))
        return [(tenant, artifact_id) for tenant, _, artifact_id in members]

    def collect(self, tenant: str, artifact_id: str, shas: Sequence[str]) -> bool:
        """Forget an artifact whose files these are, each once; False when somebody holds it again, or it is gone."""
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
