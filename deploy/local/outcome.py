"""Exit codes of the commands, the errors that carry them, and messages for the user."""

from __future__ import annotations

import errno
import signal
import sys
from contextlib import suppress
from typing import NoReturn

# Exit codes; `./deploy-cluster.sh help` lists them.
OK, FAILED, USAGE, MISSING, NOT_READY, RUNNING, PORT_TAKEN, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CommandError(Exception):
    """An error for the user: what happened, why, and the next command to run; with the exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def of_file(error: OSError) -> CommandError:
    """Return the trouble that an error of a file or a disk is."""
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CommandError(
            FAILED, f"the disk is full: {what}\n  Make room, see df -h, then run the same command again."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return CommandError(
            FAILED,
            f"this user may not use the folder of this checkout: {what}\n"
            "  Run it as the user who owns the folder, or clone the project into a folder of yours.",
        )
    return CommandError(FAILED, f"this machine refuses: {what}\n  Logs, if there are any: .cluster/logs")


class StopRequested(BaseException):
    """A signal asked to stop. Not an Exception, so that nothing swallows it."""


def say(message: str = "") -> None:
    """Print on stderr. A terminal that was closed does not keep the cluster from being stopped."""
    with suppress(OSError):
        print(message, file=sys.stderr, flush=True)


def _stop(*_: object) -> NoReturn:
    # A closed terminal sends its signal twice: the second must not break off the stopping.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise StopRequested


def raise_stopped_on_signals() -> None:
    """Turn the first stop signal into Stopped; later ones are ignored."""
    for number in STOP_SIGNALS:
        signal.signal(number, _stop)
