"""Reservations of workspaces. Only one Unix user at a time works in a workspace."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Poll interval in seconds for the stop flag of a waiting lease.
_POLL_SECONDS = 0.2

#: Tenant and name of a workspace.
Key = tuple[str, str]


class Workspaces:
    """Workspaces in use, with their current users. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users: dict[Key, list[int | None]] = {}

    def take(self, key: Key, user: int | None, stopped: Callable[[], bool]) -> bool:
        """Wait until no other user works in a workspace, and reserve it. Return False once `stopped` returns True."""
        with self._changed:
            while any(each != user for each in self._users.get(key, ())):
                if stopped():
                    return False
                self._changed.wait(_POLL_SECONDS)
            self._users.setdefault(key, []).append(user)
            return True

    def give_back(self, key: Key, user: int | None) -> None:
        with self._changed:
            self._users[key].remove(user)
            if not self._users[key]:
                del self._users[key]
            self._changed.notify_all()
