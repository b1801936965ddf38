"""The sockets of a local cluster: they are opened before any process starts, and handed over to each coordinator.

A port that was announced therefore belongs to this cluster, even while its coordinator restarts. supervisord does not
pass sockets to the programs that it starts, so a coordinator asks for them at a socket in the cluster's folder, which
only its user can open.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass

from deploy.local import ports
from jobs.settings import LOCAL_FOLDER, Settings

#: Where a coordinator requests its sockets. The path is relative to the checkout, because paths of sockets are limited
#: to about 100 bytes.
FILE = LOCAL_FOLDER / "sockets"


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Open sockets with the ports of a local cluster."""

    api: list[socket.socket]
    metrics: list[socket.socket]
    redis_port: int
    #: Socket that keeps other programs from Redis' port.
    reservation: socket.socket

    @classmethod
    def take(cls, settings: Settings, requested: int | None) -> Listeners:
        """Take the ports. Raises CommandError if a requested port is taken."""
        api = ports.api_listeners(settings, requested)
        redis_port, reservation = ports.reserve()
        return cls(api=api, metrics=_metrics(settings), redis_port=redis_port, reservation=reservation)

    @property
    def port(self) -> int:
        """Port of the API."""
        return _port(self.api)

    @property
    def metrics_port(self) -> int:
        """Port of the metrics; 0: none."""
        return _port(self.metrics)

    def close(self) -> None:
        """Close the sockets; a port is free once the coordinator has closed it, too."""
        for each in (*self.api, *self.metrics, self.reservation):
            each.close()


def _metrics(settings: Settings) -> list[socket.socket]:
    """Listen for metrics, which a coordinator serves on one address."""
    if not settings.metrics_port:
        return []
    first, *others = ports.next_listeners(settings.bind, settings.metrics_port, "the metrics server")
    for other in others:
        other.close()
    return [first]


def _port(several: list[socket.socket]) -> int:
    return int(several[0].getsockname()[1]) if several else 0


class HandOver:
    """Hands the sockets over to each coordinator that asks, from a thread, until it is closed."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        FILE.unlink(missing_ok=True)
        self._asked = socket.socket(socket.AF_UNIX)
        self._asked.bind(str(FILE.relative_to(LOCAL_FOLDER.parent)))
        self._asked.listen()
        threading.Thread(target=self._run, name="sockets", daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                self._answer(self._asked.accept()[0])

    def _answer(self, link: socket.socket) -> None:
        named = [("api", each) for each in self._listeners.api]
        named += [("metrics", each) for each in self._listeners.metrics]
        names = " ".join(name for name, _ in named).encode()
        with link, suppress(OSError):  # the coordinator has gone
            socket.send_fds(link, [names], [each.fileno() for _, each in named])

    def close(self) -> None:
        """Stop handing over, and close the sockets."""
        self._asked.shutdown(socket.SHUT_RDWR)
        self._asked.close()
        FILE.unlink(missing_ok=True)
        self._listeners.close()
