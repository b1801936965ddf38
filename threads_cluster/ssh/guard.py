"""Guard process on a host. It runs a program, and kills all of the program's processes when the connection ends.

This file is sent to the host and runs alone on Python 3.9 or later. The first line of stdin is the request. Each later
byte is a keep-alive from the client.
"""

import ctypes
import errno
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Seconds from SIGTERM to SIGKILL.
#: Seconds after which the guard ignores processes that cannot be killed.
GRACE_SECONDS, LEAVE_SECONDS = 2.0, 20.0
#: Exit codes as in env and timeout: not started, not executable, not found, and timed out.
NOT_STARTED, NOT_EXECUTABLE, NOT_FOUND, TIMED_OUT = 125, 126, 127, 124
_PR_SET_CHILD_SUBREAPER = 36


def main(request: dict[str, Any]) -> None:
    """Run the program in the request, and exit with its exit code."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Orphaned descendants of the program become children of this process, even if they change their session.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = start(request)
    over: list[str] = []
    watching = threading.Thread(target=watch, args=(request["silent_seconds"], request["timeout_seconds"], over))
    watching.daemon = True
    watching.start()
    code = child.wait()
    end_all()
    os._exit(TIMED_OUT if over else code if code >= 0 else 128 - code)


def start(request: dict[str, Any]) -> Any:
    """Start the program and return its process. If it cannot be started, exit."""
    try:
        os.chdir(request["folder"])
    except OSError as error:
        refuse(NOT_STARTED, request["folder"], error)
    environment = {"PYTHONUNBUFFERED": "1", **os.environ, **request["env"]}
    try:
        return subprocess.Popen(request["words"], stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
    except OSError as error:
        refuse(NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE, request["words"][0], error)


def refuse(code: int, what: str, error: OSError) -> None:
    """Print an error on stderr, and exit with this code."""
    sys.stderr.write(f"cluster: {what!a}: {error.strerror}\n")
    sys.stderr.flush()
    os._exit(code)


def watch(silent_seconds: float, timeout_seconds: float, over: list[str]) -> None:
    """Kill all processes of the program when keep-alive bytes stop, or after the timeout. A timeout of 0 means
    never.
    """
    deadline = time.monotonic() + (timeout_seconds or float("inf"))
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            over.append("the time")
            break
        if not receives_keep_alive(min(left, silent_seconds)) and left > silent_seconds:
            break
    end_all()


def receives_keep_alive(seconds: float) -> bool:
    """Return True if a keep-alive byte arrived within `seconds`. At the end of stdin, kill all processes and exit."""
    ready, _, _ = select.select([0], [], [], seconds)
    if not ready:
        return False
    if os.read(0, 4096):
        return True
    end_all()
    os._exit(128 + signal.SIGHUP)


def end_all() -> None:
    """Kill all descendants of this process, and wait until they have exited or cannot be killed."""
    begun, told = time.monotonic(), set[int]()
    while time.monotonic() - begun < LEAVE_SECONDS:
        left = descendants()
        if not left:
            return
        late = time.monotonic() - begun >= GRACE_SECONDS
        for pid in left if late else left - told:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        told |= left
        time.sleep(0.02)


def descendants() -> set[int]:
    """Return the PIDs of this process' running descendants."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # The process has exited
            state, parent = place.read_bytes().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                parents[int(place.parent.name)] = int(parent)
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found
