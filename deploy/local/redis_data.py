"""Copies the data of Redis from its append-only file into a dump, and back.

A dump is an RDB file, and an append-only file can start with an RDB file, its base. Only Redis converts
data: a temporary server loads them in a temporary folder.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from deploy.local import redis_server
from deploy.local.processes import Run
from jobs.settings import LOCAL_FOLDER

#: Commands that a server executes after it has loaded a restored dump. They delete the ID of the artifact store,
#: because a backup contains no artifacts; coordinators then accept an existing store or create one.
_AFTER_DUMP = b"".join([b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n", b"*2\r\n$3\r\nDEL\r\n$12\r\nct:filestore\r\n"])
_LOG = "appendonlydir"
_MANIFEST = "appendonly.aof.manifest"
_BASE, _INCREMENT = "appendonly.aof.1.base.rdb", "appendonly.aof.1.incr.aof"
_NAMES = re.compile(r"^file (\S+) ", re.MULTILINE)
#: Maximum number of attempts to copy files that a server replaces.
#: Seconds between two attempts.
_MAX_COPIES, _COPY_AGAIN_SECONDS = 50, 0.1
#: Number of lines of a server's log that an error contains.
_SHOWN_LINES = 5
_SERVER_OPTIONS = [
    "--port",
    "0",
    "--unixsocket",
    "socket",
    "--dir",
    ".",
    "--appendonly",
    "yes",
    "--auto-aof-rewrite-percentage",
    "0",
]


#: Arguments of Popen for a server whose log this process reads.
_PIPES: dict[str, Any] = {
    "stdin": subprocess.DEVNULL,
    "stdout": subprocess.PIPE,
    "stderr": subprocess.STDOUT,
    "text": True,
    "errors": "replace",
}


class UnusableData(Exception):
    """Redis cannot load or write the data. The message contains the end of its log."""


def copy(data: Path, target: Path) -> None:
    """Copy the append-only file in the folder `data` to the folder `target`. A server can be appending to it.

    The copy contains every change that was acknowledged before this call. Raises UnusableData.
    """
    for _ in range(_MAX_COPIES):
        with suppress(FileNotFoundError):
            if _try_copy(data / _LOG, target / _LOG):
                return
        shutil.rmtree(target, ignore_errors=True)
        time.sleep(_COPY_AGAIN_SECONDS)
    raise UnusableData(f"  The files in {data} change too often to copy them.")


def _try_copy(log: Path, target: Path) -> bool:
    """Copy the files of an append-only file. Return False if the server has replaced some of them meanwhile."""
    manifest = (log / _MANIFEST).read_bytes()
    target.mkdir(parents=True, mode=0o700)
    (target / _MANIFEST).write_bytes(manifest)
    for name in _NAMES.findall(manifest.decode()):
        shutil.copyfile(log / name, target / name)
    return (log / _MANIFEST).read_bytes() == manifest


def write_log(dump: Path, target: Path) -> None:
    """Write an append-only file that starts with a dump to the folder `target`."""
    log = target / _LOG
    log.mkdir(parents=True, mode=0o700)
    shutil.copyfile(dump, log / _BASE)
    (log / _INCREMENT).write_bytes(_AFTER_DUMP)
    (log / _MANIFEST).write_text(f"file {_BASE} seq 1 type b\nfile {_INCREMENT} seq 1 type i\n")


def load(server: str, folder: Path, *, dump: bool = False) -> None:
    """Let a temporary server load the append-only file in a folder. Raises UnusableData.

    With `dump`, the server also writes its data to dump.rdb.
    """
    # A server writes its dump when it stops, but only if it has a rule for dumps.
    options = [*_SERVER_OPTIONS, "--save", "3600 1" if dump else ""]
    # If this process is killed, the next start of the cluster finds the server by its marker, and stops it.
    command = Run(LOCAL_FOLDER, "copy").command(server, *options)
    with subprocess.Popen(command, cwd=folder, umask=0o077, start_new_session=True, **_PIPES) as process:
        try:
            log, is_loaded = _follow(process)
            if not is_loaded or process.wait() != 0:
                raise UnusableData("\n".join(f"  {line}" for line in log[-_SHOWN_LINES:]))
        finally:
            process.kill()


def _follow(process: subprocess.Popen[str]) -> tuple[list[str], bool]:
    """Stop a server as soon as it has loaded its data. Return its log, and False if it failed."""
    log: list[str] = []
    is_loaded = False
    assert process.stdout
    for line in process.stdout:
        log.append(line.rstrip())
        if "ready to accept connections" in line.lower():
            is_loaded = True
            process.terminate()
        if "can't exit" in line:  # The server could not write its dump, and continues
            return log, False
    return log, is_loaded


def count_keys(server: str, dump: Path) -> int:
    """Check a dump, and return the number of its keys. Raises UnusableData."""
    checked = redis_server.check_dump(server, dump)
    found = re.search(r"^\[info\] (\d+) keys read$", checked, re.MULTILINE)
    if not found or "RDB ERROR DETECTED" in checked:
        raise UnusableData("\n".join(f"  {line}" for line in checked.splitlines()[-_SHOWN_LINES:]))
    return int(found[1])
