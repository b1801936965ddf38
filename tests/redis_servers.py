"""Redis servers that tests run on, by version: 7 is the system's, 8 the one of the wheel."""

from __future__ import annotations

import shutil
from functools import cache

from deploy.local import redis_server

#: Versions of Redis on which the functions must work.
VERSIONS = ("7", "8")


@cache
def server_of(version: str) -> str | None:
    """Return the path of a server of a version; None if it is not here."""
    found = redis_server.of_wheel() if version == "8" else shutil.which("redis-server")
    at_least = (int(version),)
    return found if found and redis_server.version(found) >= at_least else None


def any_server() -> str | None:
    """Return the path of some server, the oldest that is here."""
    return next(filter(None, map(server_of, VERSIONS)), None)
