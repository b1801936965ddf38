"""Workspaces in use: a folder that outlives programs is of one user at a time, that of the slot which works there."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Seconds between two looks whether who waits shall stop.
_LOOK_SECONDS = 0.2

#: Tenant and name of a workspace.
Key = tuple[str, str]


class Workspaces:
    """Workspaces with the users that work there now. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users: dict[Key, list[int | None]] = {}

    def take(self, key: Key, user: int | None, stopped: Callable[[], bool]) -> bool:
        """Wait until nobody but this user works in a workspace, and take it; False once `stopped` says so."""
        with self._changed:
            while any(each != user for each in self._users.get(key, ())):
                if stopped():
                    return False
                self._changed.wait(_LOOK_SECONDS)
            self._users.setdefault(key, []).append(user)
            return True

    def give_back(self, key: Key, user: int | None) -> None:
        with self._changed:
            self._users[key].remove(user)
            if not self._users[key]:
                del self._users[key]
            self._changed.notify_all()
