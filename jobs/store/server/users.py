"""Users of a running Redis."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.store.server.connection import Client


def set_users(client: Client, lines: Iterable[str]) -> None:
    """Replace the permissions and passwords of users with those in lines of an ACL file, such as `user NAME on ...`.

    Connections of these users stay open.
    """
    for line in lines:
        _, name, *rules = line.split()
        client.execute_command("ACL SETUSER", name, "reset", *rules)
