"""Messages between a runner and a slot's guard: JSON over a socket that preserves message boundaries."""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Maximum size of a message in bytes, because systems limit it. A longer order is sent as a file.
#: An order contains up to 1 MiB of arguments and 64 KiB of other data, and JSON can escape each byte.
MOST_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Order:
    """Order to run one program to its end."""

    argv: list[str]
    #: Path of the working directory.
    folder: str
    #: Complete environment of the program, which inherits nothing.
    environment: dict[str, str] = field(default_factory=dict)
    #: Time in seconds after which the program is killed; 0 means never.
    timeout_seconds: float = 0.0
    #: Time in seconds between SIGTERM and the timeout, in which the program can write a checkpoint.
    stop_signal_seconds: float = 0.0
    #: Memory limit in bytes of the program and its descendants together; 0 means unlimited.
    memory_bytes: int = 0
    #: Maximum number of concurrent processes of the program; 0 means unlimited.
    processes: int = 0
    #: Unix user ID and group ID of the program if the runner is root, or None for the runner's own.
    uid: int | None = None
    #: True for a user's shell: it gets stdin, default signal handlers, and SIGHUP instead of SIGTERM.
    attached: bool = False
    #: True if stdin is the controlling terminal.
    terminal: bool = False
    #: Monotonic time at which the program is suspended unless the runner extends it; 0 means never.
    until: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ProgramEnd:
    """Description of a program's end. All of its processes have exited."""

    #: Exit code; 128 plus the number of a fatal signal; 126 or 127 if the program could not be started.
    code: int
    #: Reason for a stop: timeout, stopped, memory or processes. Empty if the program exited by itself.
    reason: str = ""
    #: Error message if the program could not be started, or an empty string.
    error: str = ""
    #: System error number if the program could not be started, or 0.
    errno: int = 0
    #: Time in seconds from the start until all processes had exited.
    seconds: float = 0.0
    #: CPU time in seconds of the program and of all collected descendants.
    cpu_seconds: float = 0.0
    #: Maximum resident memory of a single process in bytes.
    max_rss_bytes: int = 0
    #: True if descendants outlived the program. They were killed.
    left_behind: bool = False


def send(channel: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send a message with file descriptors. Raises OSError if the other side has exited or the message is too long."""
    _send(channel, json.dumps(message).encode(), descriptors)


def _send(channel: socket.socket, text: bytes, descriptors: Sequence[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    channel.sendmsg([text], rights)


def send_run(channel: socket.socket, order: Order, descriptors: Sequence[int]) -> None:
    """Send an order of any length, with the descriptors of its program."""
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
    """Return the order in a message, and remove its own descriptor from the list. Return None for another message."""
    if "file" in message:
        with os.fdopen(descriptors.pop(), "rb") as stream:
            stream.seek(0)
            message = json.load(stream)
    return Order(**message["run"]) if "run" in message else None


def receive(channel: socket.socket, descriptors: int = 0) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive a message and its descriptors. The message is None if the other side has exited."""
    try:
        data, received, flags, _ = socket.recv_fds(channel, MOST_BYTES, descriptors)
    except ConnectionError:
        return None, []
    if flags & socket.MSG_TRUNC:
        raise ValueError(f"a message to a guard exceeds {MOST_BYTES} bytes")
    return (json.loads(data) if data else None), list(received)


def stop(grace_seconds: float) -> dict[str, Any]:
    """Return a request to send SIGTERM now (SIGHUP to a shell), and SIGKILL after the grace period."""
    return {"stop": {"grace_seconds": grace_seconds}}


def keep(until: float) -> dict[str, Any]:
    """Return a message with the monotonic time from which the program is suspended; 0 means never."""
    return {"keep": {"until": until}}


def serialize_end(how: ProgramEnd) -> dict[str, Any]:
    return {"ended": asdict(how)}


def channel() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a socket for these messages."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST_BYTES)
    return ours, theirs
