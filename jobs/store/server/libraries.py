"""Function libraries on a Redis server. Each version of the project has its own library."""

from __future__ import annotations

import logging

from jobs.store import keys
from jobs.store.server.functions import Part
from jobs.store.server.library import NAMES

log = logging.getLogger(__name__)

#: Milliseconds for which a library is kept after its last use.
KEPT_MS = 86_400_000


class Libraries(Part):
    """Loads the function library of this version, and deletes unused libraries."""

    def load(self) -> None:
        """Load the function library, even if one with the same name exists, because that one may have been changed."""
        self._functions.load()

    def check(self) -> None:
        """Raise LibraryMissing if the server lacks this version's functions and this process cannot load them."""
        self._functions.read(("EXISTS", keys.UNSUPPORTED))

    def names(self) -> list[str]:
        """Return the names of this project's libraries on the Redis server."""
        found = self._client.execute_command("FUNCTION LIST", "LIBRARYNAME", NAMES)
        return [_name(each) for each in found]

    def delete_unused(self) -> list[str]:
        """Delete libraries that no running process uses, and return their names. Only the leader calls this method."""
        unused = self._functions.run_texts("unused_libraries", KEPT_MS, *self.names())
        for name in unused:
            self._client.execute_command("FUNCTION DELETE", name)
        return unused


def _name(row: object) -> str:
    """Return the library name in an entry of FUNCTION LIST, which is a list of pairs or a dictionary."""
    pairs = row if isinstance(row, dict) else dict(zip(row[::2], row[1::2], strict=True))  # type: ignore[index]
    return bytes(pairs[b"library_name"]).decode()
