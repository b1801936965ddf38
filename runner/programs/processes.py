"""Functions that inspect processes in /proc, send signals to them, and set their attributes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")

# Constants of linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that this process can find all of its descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide() -> None:
    """Prevent other processes of the same user from reading this process' memory and environment."""
    _prctl(_PR_SET_DUMPABLE, 0)


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent's thread exits. If the parent has already exited, kill it now.

    A change of user clears this setting, so call the function afterwards.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def continue_without_parent() -> None:
    """Make the kernel send SIGCONT when the parent exits. This process then continues if it is stopped."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def forbid_privilege_gain() -> None:
    """Prevent this process and its descendants from running setuid programs, which it could not kill."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def can_list_children() -> bool:
    """Return True if the kernel can list the children of a process."""
    return (PROC / "self/task" / str(os.getpid()) / "children").exists()


def children(pid: int) -> Iterator[int]:
    """Yield the PIDs of a process' children. If the process has exited, yield nothing."""
    with contextlib.suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                yield from map(int, (thread / "children").read_text().split())


def descendants(pid: int) -> list[int]:
    """Return the PIDs of all descendants, parents first. Includes zombies.

    Processes that start meanwhile can be missing.
    """
    seen: dict[int, None] = {}
    waiting = [pid]
    while waiting:
        found = [child for child in children(waiting.pop()) if child not in seen]
        seen.update(dict.fromkeys(found))
        waiting += found
    return list(seen)


def states(pid: int) -> list[str]:
    """Return the state letters of a process' threads as in /proc. The list is empty if the process has exited."""
    found = []
    with contextlib.suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                found.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return found


def command(pid: int) -> list[str]:
    """Return the command line of a process. The list is empty if the process has exited."""
    with contextlib.suppress(OSError):
        return os.fsdecode((PROC / str(pid) / "cmdline").read_bytes()).split("\0")[:-1]
    return []


def status(pid: int) -> dict[str, list[str]]:
    """Return the fields of /proc/PID/status by name. The dictionary is empty if the process has exited."""
    with contextlib.suppress(OSError):
        lines = (PROC / str(pid) / "status").read_text(errors="replace").splitlines()
        return {name: words.split() for name, _, words in (line.partition(":") for line in lines)}
    return {}


def signal_descendants(pid: int, number: signal.Signals) -> None:
    """Send a signal to all descendants of a process, but not to the process itself."""
    for each in descendants(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, number)


def kill_tree(pid: int) -> None:
    """Send SIGKILL to a process and all of its descendants once. Processes that start meanwhile can survive."""
    for each in [pid, *descendants(pid)]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)


def memory_bytes(pids: list[int]) -> int:
    """Return the total memory in bytes of several processes. Memory that they share counts once."""
    return sum(map(_memory, pids))


def _memory(pid: int) -> int:
    """Return the proportional set size of a process in bytes. If it is not readable, return the resident memory."""
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
