"""Keeper of a runner's token: `python -m runner.token_keeper`, in a container of its own beside the runner's.

Programs have the runner's user, so they could read any file in its container that it can. Its token is a file of the
keeper's container. The keeper hands it over by a socket, in a folder that the runner's container has read-only, and
only while no runner lives: the runner's process holds a lock on a file in that folder until it ends. It is the first
process of its container, so the kernel kills every program when it ends. Who asks must wait for CALM_SECONDS, in
which the lock stays free; no program lives to see their end.
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
from jobs.settings import load

log = logging.getLogger(__name__)

#: The folder that both containers have.
FOLDER = Path("/run/runner-token")
#: Seconds for which the lock must be free. The kernel kills a container's programs within milliseconds of its first
#: process' end.
CALM_SECONDS = 1.0
#: Seconds for which a runner waits for an answer, and after which it asks again.
_ANSWER_SECONDS, _AGAIN_SECONDS = 10.0, 1.0
#: Pause after a refusal.
_REFUSED_SECONDS = 0.01
#: Principals that may wait while one is answered.
_BACKLOG = 16

#: Held until this process ends.
held_descriptors: list[int] = []


def socket_of(folder: Path) -> Path:
    return folder / "socket"


def lock_of(folder: Path) -> Path:
    return folder / "lock"


# -- the keeper -------------------------------------------------------------------------------------------------------


def serve(folder: Path, token: str, calm_seconds: float = CALM_SECONDS) -> None:
    """Hand the token to whoever asks while no runner lives; for ever."""
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
                    "somebody asked for the token while a runner lives, or did not wait; more of it is not said"
                )
            # A program that asks again and again costs little.
            time.sleep(0 if given else _REFUSED_SECONDS)


def _answer(principal: socket.socket, lock: int, token: str, calm_seconds: float) -> bool:
    """Give the token where that is safe; return whether it was given."""
    if not (_is_free(lock) and _stays(principal, calm_seconds) and _is_free(lock)):
        return False
    with contextlib.suppress(OSError):
        principal.sendall(token.encode())
        log.info("a runner has started, and has the token")
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
    """Wait; True when who asks is still there, and has said nothing."""
    ready, _, _ = select.select([principal], [], [], seconds)
    return not ready


# -- the runner -------------------------------------------------------------------------------------------------------


def fetch(folder: Path = FOLDER) -> str:
    """Return the token, and hold the lock from now on until this process ends; asks until the keeper gives it."""
    said = ""
    while True:
        try:
            token = ask_holder(folder)
        except OSError as error:
            token, why = "", f"the keeper of the token does not answer: {error}"
        else:
            why = "the token was not given: another runner has it, or one has just ended"
        if token and become_holder(folder):
            return token
        if why != said:
            log.warning("%s; trying again", why)
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
    # The first process is sent only what it handles; without this a pod or a container would stay until it is killed.
    signal.signal(signal.SIGTERM, _end)
    settings = load()
    logs.configure(settings.log_level, "runner-token", host=settings.host_name())
    if not settings.worker_token:
        log.error(
            "there is no token: ./deploy-cluster.sh docker --runner makes it, or ./deploy-cluster.sh kubernetes for"
            " each pod of the StatefulSet runner; docs/operations.md says how else"
        )
        return exposure.REFUSED
    serve(FOLDER, settings.worker_token)
    return 0


if __name__ == "__main__":
    sys.exit(main())
