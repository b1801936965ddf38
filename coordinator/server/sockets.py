"""Open the sockets on which a coordinator listens, or receive them from the process that started it."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass, field

from jobs import metrics_server
from jobs.settings import Settings

#: Maximum number of sockets to receive.
#: Maximum total length in bytes of the sockets' names.
_MAX_SOCKETS, _MAX_BYTES = 16, 256


class CannotListen(Exception):
    """A port is in use or not permitted. The message names the port and a solution."""


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Listening sockets of one process."""

    #: Listening sockets of the API. If empty, the server opens them.
    api: list[socket.socket] = field(default_factory=list)
    #: Listening socket for metrics, or None if metrics are not served.
    metrics: socket.socket | None = None


def listen(settings: Settings, handed_over_at: str) -> Listeners:
    """Receive the sockets from the Unix socket at `handed_over_at`, or open them if the path is empty.

    Raise CannotListen if that fails.
    """
    if handed_over_at:
        return _receive(handed_over_at)
    if not settings.metrics_port:
        return Listeners()
    try:
        return Listeners(metrics=metrics_server.listen(settings))
    except OSError as error:
        is_in_use = error.errno == errno.EADDRINUSE
        why = "another program uses it" if is_in_use else error.strerror or str(error)
        raise CannotListen(
            f"the metrics cannot be served on port {settings.metrics_port} of {settings.bind}: {why}."
            " Set METRICS_PORT to a free port, or to 0 to disable metrics"
        ) from None


def _receive(path: str) -> Listeners:
    """Receive the sockets from the process that started this one. Only the same user can connect to its Unix socket."""
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(path)
            names, descriptors, _, _ = socket.recv_fds(link, _MAX_BYTES, _MAX_SOCKETS)
        except OSError as error:
            raise CannotListen(f"{path} did not hand over sockets: {error.strerror or error}") from None
    if not descriptors:
        raise CannotListen(f"{path} did not hand over sockets: the cluster is stopping")
    named = list(zip(names.decode().split(), map(_open, descriptors), strict=True))
    return Listeners(
        api=[each for name, each in named if name == "api"],
        metrics=next((each for name, each in named if name == "metrics"), None),
    )


def _open(descriptor: int) -> socket.socket:
    return socket.socket(fileno=descriptor)
