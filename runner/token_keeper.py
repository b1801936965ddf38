"""Token keeper of a runner: a process in a separate container that sends the token only to the runner.

Its command is `python -m runner.token_keeper`. Programs run as the runner's Unix user, so they could read every file
that the runner can read. The token is therefore a file of the keeper's container. The keeper sends it over a socket in
a folder that the runner mounts read-only.

The keeper sends the token only while no runner is alive. The runner's process holds a lock on a file in the folder
until it exits. It is the first process of its container, so the kernel kills every program when it exits. A client must
wait for CALM_SECONDS while the lock stays free, and no program survives that long.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

from jobs import logs
from jobs.network import exposure
from jobs.settings import load_for

log = logging.getLogger(__name__)

#: Folder that the containers of the runner and of the token keeper both mount.
FOLDER = Path("/run/runner-token")
#: Seconds for which the lock must be free. The kernel kills programs within milliseconds after the first process exits.
CALM_SECONDS = 1.0
#: Timeout in seconds of a runner's request for its token.
#: `_AGAIN_SECONDS` is the delay in seconds before the next request.
_ANSWER_SECONDS, _AGAIN_SECONDS = 10.0, 1.0
#: Delay in seconds after a refused request for the token.
_REFUSED_SECONDS = 0.01
#: Maximum number of clients that wait in the socket's queue.
_BACKLOG = 16

#: File descriptors that stay open until this process exits.
held_descriptors: list[int] = []


def socket_of(folder: Path) -> Path:
    return folder / "socket"


def lock_of(folder: Path) -> Path:
    return folder / "lock"


# -- keeper ------------------------------------------------------------------------------------------------------------


def serve(folder: Path, token: str, calm_seconds: float = CALM_SECONDS) -> None:
    """Send the token to clients while no runner is alive. Never returns."""
    socket_of(folder).unlink(missing_ok=True)
    lock = os.open(lock_of(folder), os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o644)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(socket_of(folder)))
        door.listen(_BACKLOG)
        refused = 0
        while True:
            principal, _ = door.accept()
            with principal:
                given = _answer(principal, lock, token, calm_seconds)
            refused = 0 if given else refused + 1
            if refused == 1:
                log.warning(
                    "refused a request for the token: a runner is alive, or the client did not wait; further refusals"
                    " are not logged"
                )
            # The delay limits the load of repeated requests by a program.
            time.sleep(0 if given else _REFUSED_SECONDS)


def _answer(principal: socket.socket, lock: int, token: str, calm_seconds: float) -> bool:
    """Send the token if no runner is alive. Return True if it was sent."""
    if not (_is_free(lock) and _stays(principal, calm_seconds) and _is_free(lock)):
        return False
    with contextlib.suppress(OSError):
        principal.sendall(token.encode())
        log.info("sent the token to a new runner")
        return True
    return False


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True


def _stays(principal: socket.socket, seconds: float) -> bool:
    """Wait, and return True if the client stays connected and sends nothing."""
    ready, _, _ = select.select([principal], [], [], seconds)
    return not ready


# -- runner ------------------------------------------------------------------------------------------------------------


def fetch(folder: Path = FOLDER) -> str:
    """Return the runner's token, and hold the lock until this process exits. Retries until the keeper sends the
    token.
    """
    said = ""
    while True:
        try:
            token = ask_holder(folder)
        except OSError as error:
            token, why = "", f"the token keeper does not answer: {error}"
        else:
            why = "the token keeper refused the token: another runner has it, or has just exited"
        if token and become_holder(folder):
            return token
        if why != said:
            log.warning("%s; retrying", why)
            said = why
        time.sleep(_AGAIN_SECONDS)


def ask_holder(folder: Path) -> str:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_ANSWER_SECONDS)
        link.connect(str(socket_of(folder)))
        return b"".join(iter(lambda: link.recv(4096), b"")).decode()


def become_holder(folder: Path) -> bool:
    lock = os.open(lock_of(folder), os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    held_descriptors.append(lock)
    return True


def _end(*_: object) -> NoReturn:
    raise SystemExit(0)


def main() -> int:
    # The kernel delivers only signals with a handler to a container's first process.
    signal.signal(signal.SIGTERM, _end)
    settings = load_for("runner")
    logs.configure(settings.log_level, "runner-token", host=settings.host_name())
    if not settings.worker_token:
        log.error(
            "there is no token: create one with ./deploy-cluster.sh docker --runner, or with ./deploy-cluster.sh"
            " kubernetes for each pod of the StatefulSet runner; docs/operations.md describes other ways"
        )
        return exposure.REFUSED
    serve(FOLDER, settings.worker_token)
    return 0


if __name__ == "__main__":
    sys.exit(main())
