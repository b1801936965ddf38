"""TCP ports: which are free, and which one the API takes."""

from __future__ import annotations

import socket

from deploy.local.outcome import PORT_TAKEN, Trouble, say
from jobs.settings import Settings

#: Ports that are tried, one after the other.
TRIED = 100


def free(host: str, port: int) -> bool:
    """Tell whether a server could listen on this port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def any_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def next_free(host: str, wanted: int, what: str, taken: tuple[int, ...] = ()) -> int:
    """Return `wanted`, or the next port that is free; then say so. Raises Trouble when none is."""
    for port in range(wanted, min(wanted + TRIED, 65536)):
        if port not in taken and free(host, port):
            if port != wanted:
                say(f"Port {wanted} is taken; {what} uses {port}.")
            return port
    last = wanted + TRIED - 1
    raise Trouble(PORT_TAKEN, f"no port from {wanted} to {last} is free for {what}; choose one with --port.")


def api_port(settings: Settings, requested: int | None) -> int:
    """Return the API's port. Raises Trouble when a port was requested, here or in the settings, and is taken."""
    if requested is None and "coordinator_port" in settings.model_fields_set:
        requested = settings.coordinator_port
    if requested is None:
        return next_free(settings.bind, settings.coordinator_port, "the cluster")
    if not free(settings.bind, requested):
        raise Trouble(
            PORT_TAKEN,
            f"port {requested} is taken by another program or may not be used."
            f" Choose another: ./deploy-cluster.sh local --port {requested + 1}; or leave --port away for a free one.",
        )
    return requested
