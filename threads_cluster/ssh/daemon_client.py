"""Sends a command to the daemon that keeps SSH connections open. This module imports no large package.

The daemon greets a client with one byte. The client then sends its arguments and its environment, and passes the file
descriptors of its output and its working directory. Afterwards, the client sends the numbers of the signals that it
receives. The daemon replies with the exit code, one byte. It closes the connection at once if it is busy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from threads_cluster import errors, settings

#: Timeouts in seconds for the greeting of a running daemon and of a daemon that was just started.
_GREETING_SECONDS, _START_SECONDS = 2.0, 20.0
#: Maximum length in bytes of a path of a socket on Linux.
_MAX_PATH = 107
#: True in the daemon itself, which runs commands instead of sending them to a daemon.
is_daemon = False
#: Folder that contains this package.
_ROOT = Path(__file__).resolve().parents[2]


class DaemonLost(errors.ClientError):
    """The daemon exited while it was running a command."""

    next = "run the command again"


def run(arguments: Sequence[str]) -> int | None:
    """Let the daemon run `cluster run` with these arguments, and return its exit code.

    Return None if this process must run the command itself. Raises DaemonLost.
    """
    if not _can_hand_over() or (path := socket_path()) is None:
        return None
    connection = _connect(path) or _start(path)
    with connection:
        try:
            if not connection.recv(1):
                return None
        except OSError:  # The daemon does not respond
            return None
        connection.settimeout(None)
        return _run(connection, arguments)


def _can_hand_over() -> bool:
    """Return True if a daemon can identify the user of this process, and can write to its stdout and stderr."""
    if is_daemon or not hasattr(socket, "SO_PEERCRED") or threading.current_thread() is not threading.main_thread():
        return False
    try:
        return (sys.stdout.fileno(), sys.stderr.fileno()) == (1, 2)
    except (OSError, ValueError, AttributeError):  # Python code has redirected the output
        return False


def socket_path() -> Path | None:
    """Return the path of the daemon's socket in a folder that only this user can access, or None without such a folder.

    The name depends on the installed code, so that a command never runs with the code of another version.
    """
    contexts = settings.load().contexts_file()
    if contexts is None:
        return None
    folder = contexts.parent / "ssh"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.lstat()
    except OSError:
        return None
    path = folder / _code_digest()
    is_private = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o077
    return path if is_private and len(os.fsencode(path)) <= _MAX_PATH - len(".4194304") else None


def _code_digest() -> str:
    packages = (_ROOT / name for name in ("threads_cluster", "threads_protocol"))
    folders = sorted(each for package in packages for each in (package, *package.iterdir()) if each.is_dir())
    code = [(str(each), each.stat().st_mtime_ns) for each in folders if each.name != "__pycache__"]
    return hashlib.sha256(repr((sys.executable, code)).encode()).hexdigest()[:16]


def _connect(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_GREETING_SECONDS)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def _start(path: Path) -> socket.socket:
    """Start a daemon, and return a connection to it."""
    import subprocess

    ours, theirs = socket.socketpair()
    ours.settimeout(_START_SECONDS)
    paths = [str(_ROOT), *filter(None, sys.path)]
    code = f"import sys; sys.path[:] = {paths!r}; from threads_cluster.ssh import daemon; daemon.main(*sys.argv[1:])"
    with theirs:
        subprocess.Popen(
            [sys.executable, "-c", code, str(path), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return ours


def _run(connection: socket.socket, arguments: Sequence[str]) -> int:
    """Send a command, forward signals, and return the exit code."""
    request = json.dumps([list(arguments), settings.environment()]).encode()
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        socket.send_fds(connection, [len(request).to_bytes(8)], [1, 2, folder])
        connection.sendall(request)
        with _forwarded_signals(connection):
            code = connection.recv(1)
    except OSError:
        code = b""
    finally:
        os.close(folder)
    if not code:
        raise DaemonLost("the process with the SSH connections exited unexpectedly, so the host stops the program")
    return code[0]


@contextlib.contextmanager
def _forwarded_signals(connection: socket.socket) -> Iterator[None]:
    """Forward SIGINT, SIGTERM and SIGHUP to the daemon. Ignored signals are not forwarded, so that nohup works."""

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            connection.send(bytes([number]))

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, forward)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
