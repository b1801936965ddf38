"""A process and what it started: who lives, what it uses, and signals to all of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none is lost sight of."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide() -> None:
    """Keep other processes of the same user from reading this one's memory and environment."""
    _prctl(_PR_SET_DUMPABLE, 0)


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent's thread ends; at once where that has happened already.

    A change of the user clears this: call it after.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def go_on_without_parent() -> None:
    """Have this process go on when its parent ends, should something have stopped it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def gain_nothing() -> None:
    """Keep this process and its descendants from becoming another user by what they execute: nobody could end them."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def can_list_children() -> bool:
    """Tell whether this kernel lists the children of a process."""
    return (PROC / "self/task" / str(os.getpid()) / "children").exists()


def children(pid: int) -> Iterator[int]:
    """Yield the children of all threads of a process; none once it is gone."""
    with contextlib.suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                yield from map(int, (thread / "children").read_text().split())


def descendants(pid: int) -> list[int]:
    """List all descendants, those that started them first; zombies too. What starts meanwhile may be missing."""
    seen: dict[int, None] = {}
    waiting = [pid]
    while waiting:
        found = [child for child in children(waiting.pop()) if child not in seen]
        seen.update(dict.fromkeys(found))
        waiting += found
    return list(seen)


def states(pid: int) -> list[str]:
    """Return the states of a process' threads as /proc has them, a letter each; none once it is gone."""
    found = []
    with contextlib.suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                found.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return found


def command(pid: int) -> list[str]:
    """Return the program of a process and its arguments; none once it is gone."""
    with contextlib.suppress(OSError):
        return os.fsdecode((PROC / str(pid) / "cmdline").read_bytes()).split("\0")[:-1]
    return []


def status(pid: int) -> dict[str, list[str]]:
    """Return the words of /proc/PID/status by name; none once it is gone."""
    with contextlib.suppress(OSError):
        lines = (PROC / str(pid) / "status").read_text(errors="replace").splitlines()
        return {name: words.split() for name, _, words in (line.partition(":") for line in lines)}
    return {}


def signal_descendants(pid: int, number: signal.Signals) -> None:
    """Send a signal to all descendants of a process, not to itself."""
    for each in descendants(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, number)


def kill_tree(pid: int) -> None:
    """Kill a process with its descendants, once; those that start meanwhile may live on."""
    for each in [pid, *descendants(pid)]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)


def memory_bytes(pids: list[int]) -> int:
    """Add up the memory of processes; what several of them share counts once. Those that ended count nothing."""
    return sum(map(_memory, pids))


def _memory(pid: int) -> int:
    """Return a process' proportional share (PSS), or, where it hides that, all that it has in memory."""
    try:
        rollup = (PROC / str(pid) / "smaps_rollup").read_text()
        return next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    except OSError:
        return _resident(pid)


def _resident(pid: int) -> int:
    try:
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0
