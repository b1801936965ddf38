"""Leftovers of an earlier runner: programs that live on because it was killed together with their guard."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from runner import processes
from runner.places import Places

log = logging.getLogger(__name__)

#: Passes of SIGKILL, and the seconds between two: what was being started during one is killed by the next.
_PASSES, _AGAIN_SECONDS = 100, 0.02


class InUse(Exception):
    """Another runner works in these folders."""


def lock(places: Places) -> BinaryIO:
    """Take the folders for this process, until it ends or the file is closed. Raises InUse, OSError.

    A program of an earlier runner that has it, as it can where programs are the runner's own user, is killed.
    """
    path = places.top / "lock"
    opened = path.open("ab")
    path.chmod(0o600)
    for _ in range(_PASSES):
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return opened
        except BlockingIOError:
            holders = [pid for pid in _programs(_variable(places)) if _has_open(pid, path)]
            if not holders:
                break
            log.warning("processes of an earlier runner's program hold its lock, and are killed: %s", holders)
            for pid in holders:
                processes.kill_tree(pid)
            time.sleep(_AGAIN_SECONDS)
    opened.close()
    raise InUse(f"another runner works in {places.top}")


def _has_open(pid: int, path: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(one.exists() and one.samefile(path) for one in (processes.PROC / str(pid) / "fd").iterdir())
    return False


def _variable(places: Places) -> bytes:
    """Return how a variable of each program of these folders begins."""
    return f"CLUSTER_RESULT={places.work}/".encode()


def end(places: Places) -> int:
    """Kill all processes whose environment says that they are programs of these folders; return how many there were.

    Their units run again as soon as a runner says that it lives under the name of the one that died.
    """
    seen: set[int] = set()
    for _ in range(_PASSES):
        living = set(_programs(_variable(places)))
        if not living:
            break
        seen |= living
        for pid in living:
            processes.kill_tree(pid)
        time.sleep(_AGAIN_SECONDS)
    if seen:
        log.warning("%d processes that an earlier runner's programs had left were killed", len(seen))
    return len(seen)


def _programs(variable: bytes) -> Iterator[int]:
    """Yield the processes with an environment in which a variable begins like this; that of a zombie is empty."""
    for path in processes.PROC.iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid() and _has(path, variable):
            yield int(path.name)


def _has(process: Path, variable: bytes) -> bool:
    try:
        environment = (process / "environ").read_bytes()
    except OSError:  # it is another user's, or has ended
        return False
    return any(each.startswith(variable) for each in environment.split(b"\0"))
