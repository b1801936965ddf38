"""Leftovers of an earlier runner: programs that live on because it was killed together with their guard, and guards
that live on because something had stopped them.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from runner.files.folders import TooDeep, clear
from runner.files.places import Places
from runner.programs import processes
from runner.programs.slot import GUARD

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


def remove(places: Places) -> None:
    """Remove files that programs of an earlier runner left. Their units start again elsewhere, or here."""
    for folder in places.work.iterdir():
        try:
            clear(folder)
        except (OSError, TooDeep, RecursionError) as error:  # the next program of the slot replaces it
            log.warning("%s cannot be removed: %s", folder, error)


def end_guards() -> int:
    """Kill all guards of this user whose runner is gone, with what they guard; return how many there were.

    A guard ends by itself when its runner does, unless it is stopped.
    """
    seen: set[int] = set()
    for _ in range(_PASSES):
        guards = [pid for pid in _processes() if _is_left_guard(pid)]
        if not guards:
            break
        seen.update(guards)
        for pid in guards:
            _end_guard(pid)
        time.sleep(_AGAIN_SECONDS)
    if seen:
        log.warning("%d guards whose runner is gone were killed with their programs", len(seen))
    return len(seen)


def _is_left_guard(pid: int) -> bool:
    """Tell whether a process is a guard of this user whose parent is not its runner any more."""
    words = processes.command(pid)
    if len(words) < 4 or words[-4:-2] != ["-m", GUARD]:
        return False
    status = processes.status(pid)
    # In a container below, ids of processes are others.
    is_here = len(status.get("NSpid", [""])) == 1
    is_ours = status.get("Uid", ["", ""])[1] == str(os.geteuid())
    return is_here and is_ours and status.get("PPid") != [words[-1]]


def _end_guard(pid: int) -> None:
    """Kill what a guard guards; once nothing of it is left, the guard: until then nothing escapes it."""
    living = [one for one in processes.descendants(pid) if set(processes.states(one)) - set("ZX")]
    for each in living or [pid]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)


def _processes() -> Iterator[int]:
    """Yield all processes but this one."""
    for path in processes.PROC.iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            yield int(path.name)


def _programs(variable: bytes) -> Iterator[int]:
    """Yield the processes with an environment in which a variable begins like this; that of a zombie is empty."""
    return (pid for pid in _processes() if _has(pid, variable))


def _has(pid: int, variable: bytes) -> bool:
    try:
        environment = (processes.PROC / str(pid) / "environ").read_bytes()
    except OSError:  # it is another user's, or has ended
        return False
    return any(each.startswith(variable) for each in environment.split(b"\0"))
