"""Functions that find free TCP ports and open sockets on them before programs start."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TypeVar

from deploy.local.outcome import PORT_TAKEN, CommandError, say
from jobs.settings import Settings

#: Maximum number of consecutive ports that are tried.
MAX_TRIED = 100
_Opened = TypeVar("_Opened")


def is_free(host: str, port: int) -> bool:
    """Return True if a program can listen on this port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def next_free(host: str, wanted: int, what: str) -> int:
    """Return the first free port from `wanted` on. Print the port if it is not `wanted`.

    Raises CommandError if no port is free.
    """

    def probe(port: int) -> int:
        if not is_free(host, port):
            raise OSError(errno.EADDRINUSE, "taken")
        return port

    return _take_first(probe, wanted, what)


def next_listeners(host: str, wanted: int, what: str) -> list[socket.socket]:
    """Listen on the first free port from `wanted` on. Print the port if it is not `wanted`.

    Raises CommandError if no port is free.
    """
    return _take_first(lambda port: _listen(host, port), wanted, what)


def _take_first(take: Callable[[int], _Opened], wanted: int, what: str) -> _Opened:
    last = min(wanted + MAX_TRIED, 65536) - 1
    for port in range(wanted, last + 1):
        with suppress(OSError):
            taken = take(port)
            if port != wanted:
                say(f"Port {wanted} is in use; {what} uses port {port}.")
            return taken
    raise CommandError(PORT_TAKEN, f"ports {wanted} to {last} are all in use; choose a port for {what} with --port.")


def _listen(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of a host. Raises OSError after closing all sockets."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    places = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)
    with ExitStack() as undo:
        opened = []
        for family, address in places:
            # The name localhost can have an IPv6 address that this machine does not have.
            with suppress(_NoSuchAddress):
                opened.append(undo.enter_context(_listener(family, address, port)))
        undo.pop_all()
    if not opened:
        raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of this machine")
    return opened


class _NoSuchAddress(Exception):
    """This machine does not have the address."""


def _listener(family: int, address: str, port: int) -> socket.socket:
    try:
        return socket.create_server((address, port), family=family)
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise _NoSuchAddress from error
        raise


def api_listeners(settings: Settings, requested: int | None) -> list[socket.socket]:
    """Listen on the port of the API. Raises CommandError if the port that the user requested is in use."""
    if requested is None and "coordinator_port" in settings.model_fields_set:
        requested = settings.coordinator_port
    if requested is None:
        return next_listeners(settings.bind, settings.coordinator_port, "the cluster")
    try:
        return _listen(settings.bind, requested)
    except OSError:
        raise CommandError(
            PORT_TAKEN,
            f"port {requested} is in use by another program, or is not permitted."
            f" Choose another: ./deploy-cluster.sh local --port {requested + 1}; or omit --port to use a free port.",
        ) from None


def reserve() -> tuple[int, socket.socket]:
    """Return a free port, and a socket that prevents other programs from using the port.

    The port is on the loopback address. On Linux, a server with SO_REUSEADDR, such as Redis, can still listen on the
    port. Other systems do not allow that, so the socket is closed there.
    """
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", 0))
    port = int(reservation.getsockname()[1])
    if not sys.platform.startswith("linux"):
        reservation.close()
    return port, reservation
