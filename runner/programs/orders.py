"""Messages between a runner and the guard of a slot: JSON over a socket that keeps their boundaries."""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Bytes of one message. A longer order is a file, since systems bound what a socket takes at once: it has up to 1 MiB
#: of words and 64 KiB of others, and JSON may escape each byte.
MOST_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Order:
    """One program to be run to its end."""

    argv: list[str]
    #: The folder in which it starts.
    folder: str
    #: Its whole environment: it inherits nothing.
    environment: dict[str, str] = field(default_factory=dict)
    #: Seconds after which it is killed; 0: never.
    timeout_seconds: float = 0.0
    #: Seconds before the timeout at which it gets SIGTERM, to write a checkpoint.
    stop_signal_seconds: float = 0.0
    #: Bytes of memory that it and its descendants may use together; 0: any.
    memory_bytes: int = 0
    #: Processes and descendants of it that may live at once; 0: any.
    processes: int = 0
    #: The user and group that it runs as, where the runner is root; None: the runner's.
    uid: int | None = None
    #: Its stdin comes along, it ends by SIGHUP, and signals are as at the start of a session: it is somebody's shell.
    attached: bool = False
    #: That stdin is its controlling terminal.
    terminal: bool = False
    #: When it is suspended unless the runner says otherwise meanwhile, in monotonic seconds; 0: never.
    until: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ProgramEnd:
    """How a program ended. Nothing that it started is alive."""

    #: Its exit status; 128 and the signal's number where a signal ended it; 126 or 127 where it could not be started.
    code: int
    #: Why it was stopped: timeout, stopped, memory, processes; empty where it ended by itself.
    reason: str = ""
    #: What could not be done to start it; empty where it started.
    error: str = ""
    #: The number of that error of the system; 0: it was none.
    errno: int = 0
    #: Seconds from its start until nothing of it was alive.
    seconds: float = 0.0
    #: Seconds of CPU, of it and all descendants that ended before their parents were gone.
    cpu_seconds: float = 0.0
    #: The most memory that one of its processes used.
    max_rss_bytes: int = 0
    #: It left descendants behind when it ended; they were killed.
    left_behind: bool = False


def send(channel: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message, with file descriptors. Raises OSError when the other side is gone or it is too long."""
    _send(channel, json.dumps(message).encode(), descriptors)


def _send(channel: socket.socket, text: bytes, descriptors: Sequence[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    channel.sendmsg([text], rights)


def send_run(channel: socket.socket, order: Order, descriptors: Sequence[int]) -> None:
    """Send an order, of any length, with its program's descriptors."""
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
    """Return the order that a message is, its own descriptor taken from the others; None for another message."""
    if "file" in message:
        with os.fdopen(descriptors.pop(), "rb") as stream:
            stream.seek(0)
            message = json.load(stream)
    return Order(**message["run"]) if "run" in message else None


def receive(channel: socket.socket, descriptors: int = 0) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive one message and at most so many descriptors; None once the other side is gone."""
    try:
        data, received, flags, _ = socket.recv_fds(channel, MOST_BYTES, descriptors)
    except ConnectionError:
        return None, []
    if flags & socket.MSG_TRUNC:
        raise ValueError(f"a message to a guard has over {MOST_BYTES} bytes")
    return (json.loads(data) if data else None), list(received)


def stop(grace_seconds: float) -> dict[str, Any]:
    """Ask for SIGTERM now, of a shell SIGHUP, and SIGKILL after the grace."""
    return {"stop": {"grace_seconds": grace_seconds}}


def keep(until: float) -> dict[str, Any]:
    """Say until when the program may run, in monotonic seconds, and then is suspended; 0: always."""
    return {"keep": {"until": until}}


def serialize_end(how: ProgramEnd) -> dict[str, Any]:
    return {"ended": asdict(how)}


def channel() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a socket for such messages."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST_BYTES)
    return ours, theirs
