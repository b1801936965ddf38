"""Function libraries on the server: this version's and others."""

from __future__ import annotations

import logging

from jobs.store import keys
from jobs.store.server.functions import Part
from jobs.store.server.library import PREFIX

log = logging.getLogger(__name__)

#: Milliseconds for which an unused library is kept, as long as lost workers are remembered.
KEPT_MS = 86_400_000


class Libraries(Part):
    """Loads this version's library and deletes unused ones."""

    def load(self) -> None:
        """Load the library, even if one with its name exists: a backup or another process may have changed that one."""
        self._functions.load()

    def check(self) -> None:
        """Raise LibraryMissing if the server lacks this version's functions and this process may not load them."""
        self._functions.read(("EXISTS", keys.UNSUPPORTED))

    def names(self) -> list[str]:
        """Return the names of this project's libraries on the server."""
        found = self._client.execute_command("FUNCTION LIST", "LIBRARYNAME", f"{PREFIX}*")
        return [_name(each) for each in found]

    def delete_unused(self) -> list[str]:
        """Delete libraries that no running process uses, and return their names. Only the leader calls this."""
        unused = self._functions.run_texts("unused_libraries", KEPT_MS, *self.names())
        for name in unused:
            self._client.execute_command("FUNCTION DELETE", name)
        return unused


def _name(row: object) -> str:
    """Return the library name in an entry of FUNCTION LIST: pairs, as a list or a dictionary."""
    pairs = row if isinstance(row, dict) else dict(zip(row[::2], row[1::2], strict=True))  # type: ignore[index]
    return bytes(pairs[b"library_name"]).decode()
