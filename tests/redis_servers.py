"""Servers that tests run on: 7 is the system's Redis, 8 the wheel's, and Valkey is on PATH or in VALKEY_SERVER."""

from __future__ import annotations

import os
import shutil
from functools import cache

import pytest

from deploy.local import redis_server

#: All servers that are supported.
ALL = ("7", "8", "valkey")
#: Servers on which every test of the functions runs. `make valkey-test` sets VALKEY_SERVER and so adds Valkey. Without
#: it, only tests of the stack, of the scripts for containers, of users and of the append-only file run on Valkey.
VERSIONS = ALL if "VALKEY_SERVER" in os.environ else ALL[:2]
_OLDEST = {"7": (7,), "8": (8,), "valkey": (8,)}


@cache
def server_of(version: str) -> str | None:
    """Return the path of a server of version 7, 8 or valkey, or None if it is not installed."""
    valkey = os.environ.get("VALKEY_SERVER") or shutil.which("valkey-server")
    found = {"7": shutil.which("redis-server"), "8": redis_server.find_in_wheel(), "valkey": valkey}[version]
    return found if found and redis_server.version(found) >= _OLDEST[version] else None


def require_server(version: str) -> str:
    """Return the path of one of VERSIONS. Without it, the test is skipped; it fails where all of them are promised."""
    found = server_of(version)
    if found is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"there is no Redis {version} here")
    return found


def any_server() -> str | None:
    """Return the path of some server, the oldest that is here."""
    return next(filter(None, map(server_of, VERSIONS)), None)
