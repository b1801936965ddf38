"""Reservations of workspaces. Only one Unix user at a time works in a workspace."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Interval in seconds at which a waiting lease checks its stop flag.
_POLL_SECONDS = 0.2

#: Key of a workspace: tenant and name.
Key = tuple[str, str]


class Workspaces:
    """Workspaces in use, and the Unix users that work in them. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users: dict[Key, list[int | None]] = {}

    def take(self, key: Key, user: int | None, stopped: Callable[[], bool]) -> bool:
        """Reserve a workspace when no other Unix user works in it. Return False if `stopped` returns True first."""
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
