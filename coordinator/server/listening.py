"""Sockets on which a coordinator listens: its own, or those that its starter holds and hands over."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass, field

from jobs import metrics_server
from jobs.settings import Settings

#: Limits of the number of sockets that are handed over, and of the bytes of their names.
_MOST, _BYTES = 16, 256


class CannotListen(Exception):
    """A port is taken or may not be used; the message says which and what to do."""


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Sockets of one process."""

    #: Sockets of the API; if empty, the server opens them.
    api: list[socket.socket] = field(default_factory=list)
    #: Socket of the metrics; None if they are not served.
    metrics: socket.socket | None = None


def listen(settings: Settings, handed_over_at: str) -> Listeners:
    """Return the sockets that are handed over at a path. If the path is empty, open them. Raises CannotListen."""
    if handed_over_at:
        return _receive(handed_over_at)
    if not settings.metrics_port:
        return Listeners()
    try:
        return Listeners(metrics=metrics_server.listen(settings))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "another program uses it" if taken else error.strerror or str(error)
        raise CannotListen(
            f"the metrics cannot be served on port {settings.metrics_port} of {settings.bind}: {why}."
            " Set METRICS_PORT to a free port, or to 0 for no metrics"
        ) from None


def _receive(path: str) -> Listeners:
    """Request the sockets from the process that started this one, at a socket that only the same user can open."""
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(path)
            names, descriptors, _, _ = socket.recv_fds(link, _BYTES, _MOST)
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
