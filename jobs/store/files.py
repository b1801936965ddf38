"""Index of the files of artifacts, keyed by tenant and SHA-256, and of the storage objects with their bytes.

Each object is written once under a new name. An object is unowned before it is assigned to a file and after the file
releases it; then the leader deletes its bytes. So even if processes die, no process overwrites bytes that another one
reads.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part

#: Size in bytes of the storage objects of a file, except for the last object.
PART_BYTES = 8 << 20
#: Maximum number of files that one call accepts.
MAX_ASKED = 10_000
#: Milliseconds after which an announced storage object is deleted if no file uses it.
WRITE_MS = 3_600_000
#: Maximum number of uploads, files and storage objects that one call removes.
_CONDEMNED = 500


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """Completely uploaded file."""

    size: int
    #: Number of artifacts that contain the file.
    references: int
    #: Storage objects of the file, in order. All except the last one have PART_BYTES bytes.
    objects: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Upload:
    """File that is not completely uploaded."""

    size: int
    objects: dict[int, str]


@dataclass(frozen=True, kw_only=True)
class CapExceeded:
    """Limit on stored bytes that an upload would exceed."""

    most: int
    #: Total bytes of files that belong to no artifact.
    loose: int


@dataclass(frozen=True, kw_only=True)
class FileSums:
    """Number and total size of a tenant's files. Stored files belong to artifacts, and loose files do not."""

    stored_files: int = 0
    stored_bytes: int = 0
    loose_files: int = 0
    loose_bytes: int = 0


def new_object() -> str:
    """Return a new random name for a storage object."""
    return secrets.token_hex(12)


class Files(Part):
    """Index of files in Redis. Methods return CapExceeded if the limit of a tenant rejects new files."""

    def missing(self, tenant: str, shas: Sequence[str]) -> list[str]:
        """Return the hashes of files that do not exist. The cluster keeps the other files for at least one day."""
        return [shas[number] for number in self._functions.run("touch_files", tenant, *shas)]

    def begin(self, tenant: str, objects: Sequence[str]) -> None:
        """Announce storage objects before writing them. If no file uses them within WRITE_MS, the cluster
        deletes them.
        """
        self._functions.run_acknowledged("begin_objects", tenant, WRITE_MS, *objects)

    def add(self, tenant: str, rows: Sequence[tuple[str, int, str]]) -> list[str] | CapExceeded:
        """Turn written storage objects into files. Each row consists of the SHA-256, the size and the object.

        Return for each file: new, there (it existed) or gone (the object was not announced).
        """
        reply = self._functions.run_acknowledged_texts("add_files", tenant, *(item for row in rows for item in row))
        return _parse_refusal(reply) or reply

    def add_part(self, tenant: str, sha: str, size: int, number: int, name: str) -> str | CapExceeded:
        """Add a written storage object to a file as its next part.

        Return the same results as `add`, or `size` if the upload has another size.
        """
        reply = self._functions.run_acknowledged_texts("add_part", tenant, sha, size, number, name)
        return _parse_refusal(reply) or reply[0]

    def upload(self, tenant: str, sha: str) -> Upload | None:
        """Return the uploaded parts of an incomplete file, or None if there is no such upload."""
        [reply] = self._functions.read(("HGETALL", keys.parts(tenant, sha)))
        fields = {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}
        if "size" not in fields:
            return None
        return Upload(size=int(fields.pop("size")), objects={int(number): name for number, name in fields.items()})

    def uploads(self, tenant: str, shas: Sequence[str]) -> dict[str, list[int]]:
        """Return the part numbers that were already uploaded, for each incomplete file."""
        pipe = self._pipe()
        for sha in shas:
            pipe.hkeys(keys.parts(tenant, sha))
        rows = zip(shas, pipe.execute(), strict=True)
        return {sha: sorted(int(name) for name in names if name != b"size") for sha, names in rows if names}

    def end_upload(self, tenant: str, sha: str, objects: Sequence[str], *, verified: bool) -> bool:
        """Turn uploaded parts into a file if `verified`, otherwise release them. Return False if the parts have
        changed.
        """
        return bool(self._functions.run_acknowledged("end_parts", tenant, sha, ",".join(objects), int(verified)))

    def get(self, tenant: str, sha: str) -> StoredFile | None:
        """Return a file of this tenant, or None if it does not exist."""
        return self.several(tenant, [sha])[0]

    def several(self, tenant: str, shas: Sequence[str]) -> list[StoredFile | None]:
        """Return several files of this tenant. The entry of a missing file is None."""
        return list(map(_file, self._client.hmget(keys.files(tenant), shas) if shas else ()))

    def lose(self, tenant: str, sha: str, objects: Sequence[str]) -> bool:
        """Record that the bytes of a file are lost. The file counts as missing until a client uploads it again."""
        return bool(self._functions.run_acknowledged("lose_file", tenant, sha, ",".join(objects)))

    def sums(self) -> dict[str, FileSums]:
        """Return the number and the total size of files for each tenant."""
        [stored] = unreadable_entries.replies(self._pipe().hgetall(keys.FILE_SUMS))
        rows: dict[str, dict[str, int]] = {}
        for tenant, name, value in unreadable_entries.readable("filesums", (stored or {}).items(), _sum):
            rows.setdefault(tenant, {})[name] = value
        return {tenant: FileSums(**row) for tenant, row in rows.items()}

    # -- leader methods --------------------------------------------------------------------------------------------

    def condemn(self) -> list[tuple[str, str]]:
        """Remove expired files, uploads and storage objects from the index. Return the objects to delete, as (tenant,
        name).
        """
        reply = self._functions.run_texts("condemn_files", _CONDEMNED)
        return [(tenant, name) for tenant, _, name in (member.partition("/") for member in reply)]

    def forget(self, objects: Sequence[tuple[str, str]]) -> None:
        """Record that the bytes of storage objects were deleted."""
        if objects:
            self._client.srem(keys.DOOMED, *(f"{tenant}/{name}" for tenant, name in objects))

    # -- byte store ------------------------------------------------------------------------------------------------

    def store_id(self) -> str | None:
        """Return the ID of the artifact store. None means that no store exists, and "" that it is being initialized."""
        stored = self._client.get(keys.FILE_STORE)
        return stored.decode() if stored is not None else None

    def claim_store(self) -> bool:
        """Start the initialization of the first artifact store. `settle_store` completes the initialization.

        Return False if another coordinator is initializing it.
        """
        return bool(self._client.set(keys.FILE_STORE, "", nx=True, px=30_000))

    def settle_store(self, store_id: str) -> None:
        """Record the ID of the artifact store after its marker file was written."""
        self._client.set(keys.FILE_STORE, store_id)


def _file(stored: bytes | None) -> StoredFile | None:
    size, references, objects = (stored or b"::").decode().split(":")
    if not objects:
        return None
    return StoredFile(size=int(size), references=int(references), objects=tuple(objects.split(",")))


def _sum(field: bytes, value: bytes) -> tuple[str, str, int]:
    tenant, what, unit = field.decode().split("|")
    return (
        tenant,
        {"stored": "stored_", "loose": "loose_"}[what] + {"files": "files", "bytes": "bytes"}[unit],
        int(value),
    )


def _parse_refusal(reply: Sequence[str]) -> CapExceeded | None:
    return CapExceeded(most=int(reply[1]), loose=int(reply[2])) if reply[:1] == ["over"] else None
