"""Messages between a runner and a slot's guard process: JSON over a socket that preserves message boundaries."""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Maximum size of a message in bytes. A longer order is sent as a file.
MOST_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Order:
    """Request to run one program until it exits."""

    argv: list[str]
    #: Path of the working directory.
    folder: str
    #: All environment variables of the program. The program inherits no other variables.
    environment: dict[str, str] = field(default_factory=dict)
    #: Seconds after which the program is killed. 0 means never.
    timeout_seconds: float = 0.0
    #: Seconds between SIGTERM and SIGKILL, in which the program can write a checkpoint.
    stop_signal_seconds: float = 0.0
    #: Maximum memory in bytes of the program and its descendants together. 0 means no limit.
    memory_bytes: int = 0
    #: Maximum number of concurrent processes of the program. 0 means no limit.
    processes: int = 0
    #: Unix user ID and group ID of the program if the runner is root. None keeps the runner's own.
    uid: int | None = None
    #: True for a user's shell. Shells get stdin, default signal handlers, and SIGHUP instead of SIGTERM.
    attached: bool = False
    #: True if stdin becomes the controlling terminal of the program.
    terminal: bool = False
    #: Monotonic time at which the program is suspended unless the runner extends this time. 0 means never.
    until: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ProgramEnd:
    """How a program ended, after all of its processes have exited."""

    #: Exit code, 128 plus the number of a fatal signal, or 126 or 127 if the program could not be started.
    code: int
    #: Reason for stopping the program: timeout, stopped, memory or processes. Empty if the program exited by itself.
    reason: str = ""
    #: Error message if the program could not be started, or an empty string.
    error: str = ""
    #: System error number if the program could not be started, or 0.
    errno: int = 0
    #: Time in seconds from the start until all processes had exited.
    seconds: float = 0.0
    #: CPU time in seconds of the program and of all collected descendants.
    cpu_seconds: float = 0.0
    #: Maximum resident memory in bytes of any single process.
    max_rss_bytes: int = 0
    #: True if child processes outlived the program. They were killed.
    left_behind: bool = False


def send(channel: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send a message and file descriptors. Raises OSError if the peer has exited or the message is too long."""
    _send(channel, json.dumps(message).encode(), descriptors)


def _send(channel: socket.socket, text: bytes, descriptors: Sequence[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    channel.sendmsg([text], rights)


def send_run(channel: socket.socket, order: Order, descriptors: Sequence[int]) -> None:
    """Send an order and the file descriptors of its program. The order can have any length."""
    text = json.dumps({"run": asdict(order)}).encode()
    if len(text) <= MOST_BYTES:
        _send(channel, text, descriptors)
        return
    file = os.memfd_create("order", os.MFD_CLOEXEC)
    try:
        with os.fdopen(file, "wb", closefd=False) as stream:
            stream.write(text)
        send(channel, {"file": len(text)}, [*descriptors, file])
    finally:
        os.close(file)


def receive_order(message: dict[str, Any], descriptors: list[int]) -> Order | None:
    """Return the order in a message, or None if the message is not an order.

    The descriptor of an order that was sent as a file is removed from the list.
    """
    if "file" in message:
        with os.fdopen(descriptors.pop(), "rb") as stream:
            stream.seek(0)
            message = json.load(stream)
    return Order(**message["run"]) if "run" in message else None


def receive(channel: socket.socket, descriptors: int = 0) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive a message and its file descriptors. The message is None if the peer has exited."""
    try:
        data, received, flags, _ = socket.recv_fds(channel, MOST_BYTES, descriptors)
    except ConnectionError:
        return None, []
    if flags & socket.MSG_TRUNC:
        raise ValueError(f"a message to a guard exceeds {MOST_BYTES} bytes")
    return (json.loads(data) if data else None), list(received)


def stop(grace_seconds: float) -> dict[str, Any]:
    """Return a message that sends SIGTERM now (SIGHUP to a shell), and SIGKILL after the grace period."""
    return {"stop": {"grace_seconds": grace_seconds}}


def keep(until: float) -> dict[str, Any]:
    """Return a message that sets the monotonic time at which the program is suspended. 0 means never."""
    return {"keep": {"until": until}}


def serialize_end(how: ProgramEnd) -> dict[str, Any]:
    return {"ended": asdict(how)}


def channel() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a socket between a runner and a guard process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST_BYTES)
    return ours, theirs
