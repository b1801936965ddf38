"""Exit codes of commands, exceptions with exit codes, and messages to the user."""

from __future__ import annotations

import errno
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from threads_cluster.command_names import name_commands

# Exit codes of the commands. `./deploy-cluster.sh help` lists them.
OK, FAILED, USAGE, MISSING, NOT_READY, RUNNING, PORT_TAKEN, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CommandError(Exception):
    """Error of a command, with its exit code. The message contains the cause and a remedy."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def command_error_from_os_error(error: OSError) -> CommandError:
    """Convert a file system error into a CommandError."""
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CommandError(
            FAILED, f"the disk is full: {what}\n  Free some space (see df -h), then run the same command again."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return CommandError(
            FAILED,
            f"this user has no access to the folder of this checkout: {what}\n"
            "  Run the command as the owner of the folder, or clone the project into a folder of your own.",
        )
    return CommandError(FAILED, f"the operating system reported an error: {what}\n  Logs, if any: .cluster/logs")


class StopRequested(BaseException):
    """A signal requested a stop. The base class prevents `except Exception` from catching this exception."""


def say(message: str = "") -> None:
    """Print a message on stderr. If the terminal is closed, do nothing, so that the cluster can be stopped."""
    with suppress(OSError):
        print(name_commands(message), file=sys.stderr, flush=True)


def _stop(*_: object) -> NoReturn:
    # A closed terminal sends its signal twice. The second signal must not interrupt the stop.
    ignore_stop_signals()
    raise StopRequested


def ignore_stop_signals() -> None:
    """Ignore signals that request a stop."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def raise_on_stop_signals() -> None:
    """Raise StopRequested at the first signal that requests a stop. Ignore later signals."""
    for number in STOP_SIGNALS:
        signal.signal(number, _stop)
