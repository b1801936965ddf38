"""Storage of marks, which are facts that finished jobs proved about ranges of integers."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.marks import parse_marks, payloads_by_range
from jobs.models import Mark
from jobs.store import keys
from jobs.store.server.functions import Part


class Marks(Part):
    """Reads and merges the marks of finished jobs in Redis."""

    def read(self, kind: str, name: str) -> list[Mark]:
        """Return the proven ranges of a mark in order."""
        stored = self._client.hgetall(keys.mark(kind, name))
        text = {field.decode(errors="replace"): payload.decode(errors="replace") for field, payload in stored.items()}
        return parse_marks(name, text)

    def count(self, kind: str, name: str) -> int:
        """Return the number of ranges of a mark."""
        return int(self._client.hlen(keys.mark(kind, name)))

    def replace(self, kind: str, name: str, old: Iterable[Mark], new: Iterable[Mark]) -> None:
        """Replace ranges with merged ranges that cover them. Readers see either the old or the new ranges."""
        fields = payloads_by_range(new)
        if gone := payloads_by_range(old).keys() - fields.keys():
            pipe = self._client.pipeline(transaction=True)
            pipe.hset(keys.mark(kind, name), mapping=fields).hdel(keys.mark(kind, name), *gone).execute()
