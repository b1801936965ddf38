"""Sent to a host, and run there by its Python: starts one program, and lets nothing of it outlive who asked for it.

It stands alone and knows Python 3.9. The first line of stdin is the request; what follows says that somebody waits.
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

#: Seconds between SIGTERM and SIGKILL, and until what cannot be ended is left.
GRACE_SECONDS, LEAVE_SECONDS = 2.0, 20.0
#: Exit codes as those of env and timeout: not started, cannot be executed, not found, out of time.
NOT_STARTED, NOT_EXECUTABLE, NOT_FOUND, TIMED_OUT = 125, 126, 127, 124
_PR_SET_CHILD_SUBREAPER = 36


def main(request: dict[str, Any]) -> None:
    """Run the program of a request; its exit code is this process' own."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # What the program leaves behind becomes a child of this process, wherever it went.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = started(request)
    over: list[str] = []
    watching = threading.Thread(target=watch, args=(request["silent_seconds"], request["timeout_seconds"], over))
    watching.daemon = True
    watching.start()
    code = child.wait()
    end_all()
    os._exit(TIMED_OUT if over else code if code >= 0 else 128 - code)


def started(request: dict[str, Any]) -> Any:
    """Return the program's process; exits where it cannot be started."""
    try:
        os.chdir(request["folder"])
    except OSError as error:
        refuse(NOT_STARTED, request["folder"], error)
    environment = dict(os.environ)
    environment.update(request["env"])
    try:
        return subprocess.Popen(request["words"], stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
    except OSError as error:
        refuse(NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE, request["words"][0], error)


def refuse(code: int, what: str, error: OSError) -> None:
    """Say on stderr what went wrong, and exit."""
    sys.stderr.write(f"cluster: {what!a}: {error.strerror}\n")
    sys.stderr.flush()
    os._exit(code)


def watch(silent_seconds: float, timeout_seconds: float, over: list[str]) -> None:
    """End everything once nobody waits any more, or once the time is over; 0: never."""
    deadline = time.monotonic() + (timeout_seconds or float("inf"))
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            over.append("the time")
            break
        if not heard(min(left, silent_seconds)) and left > silent_seconds:
            break
    end_all()


def heard(seconds: float) -> bool:
    """Tell whether somebody waits: something came within the seconds. At the end of stdin nobody does, and all ends."""
    ready, _, _ = select.select([0], [], [], seconds)
    if not ready:
        return False
    if os.read(0, 4096):
        return True
    end_all()
    os._exit(128 + signal.SIGHUP)


def end_all() -> None:
    """End all that came from this process; returns when nothing of it is left, or cannot be ended."""
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
    """Return the processes below this one that have not ended."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            state, parent = place.read_bytes().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                parents[int(place.parent.name)] = int(parent)
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found
