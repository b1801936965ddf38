"""Listening sockets of a local cluster. They are opened before any process starts, and passed to each coordinator.

An announced port therefore belongs to this cluster, even while its coordinator restarts. supervisord does not pass
sockets to the programs that it starts. A coordinator therefore requests them through a Unix socket in the cluster's
folder, which only its user can open.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass

from deploy.local import ports
from jobs.settings import LOCAL_FOLDER, Settings

#: Unix socket from which a coordinator receives the listening sockets. Its path must be short.
FILE = LOCAL_FOLDER / "sockets"


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Open sockets that reserve the ports of a local cluster."""

    api: list[socket.socket]
    metrics: list[socket.socket]
    redis_port: int
    #: Socket that keeps other programs from using the port of Redis.
    reservation: socket.socket

    @classmethod
    def take(cls, settings: Settings, requested: int | None) -> Listeners:
        """Open all sockets of a local cluster. Raises CommandError if a port that the user requested is in use."""
        api = ports.api_listeners(settings, requested)
        redis_port, reservation = ports.reserve()
        return cls(api=api, metrics=_metrics(settings), redis_port=redis_port, reservation=reservation)

    @property
    def port(self) -> int:
        """Return the port of the API."""
        return _port(self.api)

    @property
    def metrics_port(self) -> int:
        """Return the port of the metrics, or 0 if metrics are disabled."""
        return _port(self.metrics)

    def close(self) -> None:
        """Close all sockets. A port becomes free when the coordinator has also closed it."""
        for each in (*self.api, *self.metrics, self.reservation):
            each.close()


def _metrics(settings: Settings) -> list[socket.socket]:
    """Open a socket for metrics. A coordinator serves metrics on one address only."""
    if not settings.metrics_port:
        return []
    first, *others = ports.next_listeners(settings.bind, settings.metrics_port, "the metrics server")
    for other in others:
        other.close()
    return [first]


def _port(several: list[socket.socket]) -> int:
    return int(several[0].getsockname()[1]) if several else 0


class HandOver:
    """Thread that passes the listening sockets to each coordinator that connects."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        FILE.unlink(missing_ok=True)
        self._asked = socket.socket(socket.AF_UNIX)
        self._asked.bind(str(FILE.relative_to(LOCAL_FOLDER.parent)))
        self._asked.listen()
        threading.Thread(target=self._run, name="sockets", daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):  # The listening socket was closed
            while True:
                self._answer(self._asked.accept()[0])

    def _answer(self, link: socket.socket) -> None:
        named = [("api", each) for each in self._listeners.api]
        named += [("metrics", each) for each in self._listeners.metrics]
        names = " ".join(name for name, _ in named).encode()
        with link, suppress(OSError):  # The coordinator has disconnected
            socket.send_fds(link, [names], [each.fileno() for _, each in named])

    def close(self) -> None:
        """Stop the thread and close all sockets."""
        self._asked.shutdown(socket.SHUT_RDWR)
        self._asked.close()
        FILE.unlink(missing_ok=True)
        self._listeners.close()
