"""Cleanup of processes and files that an earlier runner left behind."""

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

from runner.files.directories import Places
from runner.files.folders import TooDeep, clear
from runner.programs import processes
from runner.programs.slot import GUARD

log = logging.getLogger(__name__)

#: Number of rounds of SIGKILL. Each round kills processes that started since the last round.
#: `_AGAIN_SECONDS` is the interval in seconds between two rounds.
_PASSES, _AGAIN_SECONDS = 100, 0.02


class InUse(Exception):
    """Another runner is using the same folders."""


def lock(places: Places) -> BinaryIO:
    """Lock the runner's folders until this process exits or the file is closed. Raises InUse and OSError.

    Programs that run as the runner's own user can hold the lock of an earlier runner. They are killed.
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
            log.warning("killing an earlier runner's programs, which hold its lock: %s", holders)
            for pid in holders:
                processes.kill_tree(pid)
            time.sleep(_AGAIN_SECONDS)
    opened.close()
    raise InUse(f"another runner is using {places.top}")


def _has_open(pid: int, path: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(one.exists() and one.samefile(path) for one in (processes.PROC / str(pid) / "fd").iterdir())
    return False


def _variable(places: Places) -> bytes:
    """Return the start of an environment variable that identifies programs in the runner's folders."""
    return f"CLUSTER_RESULT={places.work}/".encode()


def end(places: Places) -> int:
    """Kill all programs that run in the runner's folders, and return the number of killed processes.

    Their units are retried as soon as a runner with the same worker name sends a heartbeat.
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
        log.warning("killed %d processes of an earlier runner's programs", len(seen))
    return len(seen)


def remove(places: Places) -> None:
    """Delete the working directories that an earlier runner left behind."""
    for folder in places.work.iterdir():
        try:
            clear(folder)
        except (OSError, TooDeep, RecursionError) as error:  # The slot's next program replaces the folder
            log.warning("cannot delete %s: %s", folder, error)


def end_guards() -> int:
    """Kill this user's guard processes whose runner has exited, and their programs. Return the number of guards.

    Such a guard exits by itself unless a signal has stopped it.
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
        log.warning("killed %d guards of earlier runners with their programs", len(seen))
    return len(seen)


def _is_left_guard(pid: int) -> bool:
    """Return True if a process is a guard of this user whose runner is no longer its parent."""
    words = processes.command(pid)
    if len(words) < 4 or words[-4:-2] != ["-m", GUARD]:
        return False
    status = processes.status(pid)
    # In a nested container, the runner's PID differs from the PID in the guard's arguments.
    has_module = len(status.get("NSpid", [""])) == 1
    is_ours = status.get("Uid", ["", ""])[1] == str(os.geteuid())
    [parent] = status.get("PPid", ["0"])
    # A program has the command line of its guard from the fork until it is executed.
    is_program = processes.command(int(parent)) == words
    return has_module and is_ours and parent != words[-1] and not is_program


def _end_guard(pid: int) -> None:
    """Kill all descendants of a guard process, or the guard itself if no descendant is left.

    Until then, no descendant can escape.
    """
    living = [one for one in processes.descendants(pid) if set(processes.states(one)) - set("ZX")]
    for each in living or [pid]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)


def _processes() -> Iterator[int]:
    """Yield the PIDs of all processes except this one."""
    for path in processes.PROC.iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            yield int(path.name)


def _programs(variable: bytes) -> Iterator[int]:
    """Yield the PIDs of processes with an environment variable that starts with this text."""
    return (pid for pid in _processes() if _has(pid, variable))


def _has(pid: int, variable: bytes) -> bool:
    try:
        environment = (processes.PROC / str(pid) / "environ").read_bytes()
    except OSError:  # The process has exited or belongs to another user
        return False
    return any(each.startswith(variable) for each in environment.split(b"\0"))
