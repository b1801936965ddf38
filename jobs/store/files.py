"""Files of artifacts, by tenant and SHA-256: which there are, and the objects that hold their bytes.

An object is written once, under a new name, and is unowned before it becomes a file's and after it was one's: then the
leader deletes its bytes. So nobody writes what somebody else reads, whatever dies in between.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.store import keys, skipped
from jobs.store.server.functions import Part

#: Bytes of every object of a file but its last.
PART_BYTES = 8 << 20
#: Files of one call at most.
MAX_ASKED = 10_000
#: An object that was begun is a file's within this time, or deleted.
WRITE_MS = 3_600_000
#: Uploads, files and objects that one call condemns at most.
_CONDEMNED = 500


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """File of which every byte is there."""

    size: int
    #: Artifacts that refer to it.
    references: int
    #: Objects in their order; each but the last has PART_BYTES.
    objects: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Upload:
    """File of which some parts are there."""

    size: int
    objects: dict[int, str]


@dataclass(frozen=True, kw_only=True)
class TooMuch:
    """The cap on stored bytes that keeps files out."""

    most: int
    #: Bytes of files that no artifact refers to.
    loose: int


@dataclass(frozen=True, kw_only=True)
class FileSums:
    """Files of a tenant and their bytes: those that artifacts refer to, with their manifests, and the others."""

    stored_files: int = 0
    stored_bytes: int = 0
    loose_files: int = 0
    loose_bytes: int = 0


def new_object() -> str:
    """Return the name of an object that nobody has written."""
    return secrets.token_hex(12)


class Files(Part):
    """The index of files. What takes files answers TooMuch where a cap of their tenant keeps them out."""

    def missing(self, tenant: str, shas: Sequence[str]) -> list[str]:
        """Return those of the files that are not there. Those that are, stay for a day at least."""
        return [shas[number] for number in self._functions.run("touch_files", tenant, *shas)]

    def begin(self, tenant: str, objects: Sequence[str]) -> None:
        """Note that objects are about to be written; what is not a file's within WRITE_MS is deleted."""
        self._functions.kept("begin_objects", tenant, WRITE_MS, *objects)

    def add(self, tenant: str, rows: Sequence[tuple[str, int, str]]) -> list[str] | TooMuch:
        """Make written objects files, each (sha256, size, object): new; there: it was; gone: it was not begun."""
        reply = self._functions.kept_words("add_files", tenant, *(item for row in rows for item in row))
        return _refused(reply) or reply

    def add_part(self, tenant: str, sha: str, size: int, number: int, name: str) -> str | TooMuch:
        """Make a written object a part of a file: new, there, gone as `add`; size: the file was begun with another."""
        reply = self._functions.kept_words("add_part", tenant, sha, size, number, name)
        return _refused(reply) or reply[0]

    def upload(self, tenant: str, sha: str) -> Upload | None:
        """Return the parts that are there of a file that is not whole; None without one."""
        [reply] = self._functions.read(("HGETALL", keys.parts(tenant, sha)))
        fields = {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}
        if "size" not in fields:
            return None
        return Upload(size=int(fields.pop("size")), objects={int(number): name for number, name in fields.items()})

    def uploads(self, tenant: str, shas: Sequence[str]) -> dict[str, list[int]]:
        """Return the numbers of the parts that are there, of those of the files that have some."""
        pipe = self._pipe()
        for sha in shas:
            pipe.hkeys(keys.parts(tenant, sha))
        rows = zip(shas, pipe.execute(), strict=True)
        return {sha: sorted(int(name) for name in names if name != b"size") for sha, names in rows if names}

    def end_upload(self, tenant: str, sha: str, objects: Sequence[str], *, verified: bool) -> bool:
        """Make parts a file, or unowned unless `verified`. False: the parts are others by now."""
        return bool(self._functions.kept("end_parts", tenant, sha, ",".join(objects), int(verified)))

    def get(self, tenant: str, sha: str) -> StoredFile | None:
        """Return a file; None for one that this tenant does not have, whoever else has it."""
        return self.several(tenant, [sha])[0]

    def several(self, tenant: str, shas: Sequence[str]) -> list[StoredFile | None]:
        """Return the same for each of several files."""
        return list(map(_file, self._client.hmget(keys.files(tenant), shas) if shas else ()))

    def lose(self, tenant: str, sha: str, objects: Sequence[str]) -> bool:
        """Note that the bytes of a file are gone: it is missing until it is uploaded again."""
        return bool(self._functions.kept("lose_file", tenant, sha, ",".join(objects)))

    def sums(self) -> dict[str, FileSums]:
        """Return what each tenant stores."""
        [stored] = skipped.replies(self._pipe().hgetall(keys.FILE_SUMS))
        rows: dict[str, dict[str, int]] = {}
        for tenant, name, value in skipped.readable("filesums", (stored or {}).items(), _sum):
            rows.setdefault(tenant, {})[name] = value
        return {tenant: FileSums(**row) for tenant, row in rows.items()}

    # -- the leader's -----------------------------------------------------------------------------------------------

    def condemn(self) -> list[tuple[str, str]]:
        """Let what is due lose its place; return objects, as (tenant, name), whose bytes are to be deleted."""
        reply = self._functions.words("condemn_files", _CONDEMNED)
        return [(tenant, name) for tenant, _, name in (member.partition("/") for member in reply)]

    def forget(self, objects: Sequence[tuple[str, str]]) -> None:
        """Note that the bytes of these objects are deleted."""
        if objects:
            self._client.srem(keys.DOOMED, *(f"{tenant}/{name}" for tenant, name in objects))

    # -- the store of bytes -----------------------------------------------------------------------------------------

    def store_id(self) -> str | None:
        """Return the id of the store that holds the bytes; None before the first, empty while that is begun."""
        stored = self._client.get(keys.FILE_STORE)
        return stored.decode() if stored is not None else None

    def claim_store(self) -> bool:
        """Begin the first store of this cluster; False when another coordinator does. It counts once it is settled."""
        return bool(self._client.set(keys.FILE_STORE, "", nx=True, px=30_000))

    def settle_store(self, store_id: str) -> None:
        """Note the id of the store, whose marker is written."""
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


def _refused(reply: Sequence[str]) -> TooMuch | None:
    return TooMuch(most=int(reply[1]), loose=int(reply[2])) if reply[:1] == ["over"] else None
