"""Run one coordinator: `python -m coordinator`, with `--sockets PATH` on sockets that it gets at PATH."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import logging
import resource
import sys

import uvicorn

from coordinator import app, destinations, extras
from coordinator.artifacts import start as artifact_store
from coordinator.artifacts.blobs import WrongStore
from coordinator.secrets import keys
from coordinator.server import certificates, client_address, sockets
from coordinator.server.protocol import BoundedProtocol
from jobs import logs
from jobs.network import exposure, redis_address
from jobs.network.tunnel import MAX_MESSAGE
from jobs.settings import load

log = logging.getLogger("coordinator")

#: Open files of a coordinator at most; a connection that has not spoken yet takes 20 KiB.
_MOST_FILES = 16384
#: Settings of glibc's malloc (mallopt(3)) and their bytes: larger blocks are mapped, and free memory beyond goes back.
#: Set, they stay: otherwise malloc keeps up to 64 MiB after the first large body.
_M_TRIM_THRESHOLD, _TRIM_BYTES = -1, 4 << 20
_M_MMAP_THRESHOLD, _MMAP_BYTES = -3, 1 << 20


def main(handed_over_at: str = "") -> int:
    """Serve until a signal; return the exit code. `handed_over_at`: see `sockets.listen`."""
    settings = load()
    logs.configure(settings.log_level, "coordinator", host=settings.host_name())
    try:
        exposure.check(settings)
        keys.check(settings)
        client_address.check(settings)
        destinations.check(settings)
        redis_address.check(settings.redis_url)
        artifact_store.check(settings)
        certificates.check(settings)
        extras.check(settings)
        listeners = sockets.listen(settings, handed_over_at)
    except (
        exposure.Exposed,
        keys.UnusableKey,
        client_address.UnusableProxies,
        destinations.UnusableNetworks,
        redis_address.UnusableAddress,
        WrongStore,
        certificates.UnusableCertificate,
        extras.MissingPackages,
        sockets.CannotListen,
    ) as error:
        log.error("%s", error)
        return exposure.REFUSED
    settings = extras.drop_unusable(settings)
    _take_files()
    _give_back_memory()
    logging.getLogger("uvicorn.error").addFilter(is_event)
    config = uvicorn.Config(
        app.create(settings, metrics=listeners.metrics),
        host=settings.bind,
        port=settings.coordinator_port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
        http=BoundedProtocol,
        # Tunnels of runners: the one at the other end says every five seconds that it is there.
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE,
        ws_per_message_deflate=False,
        ws_ping_interval=None,
        # Which would believe every process of this machine; client_address.py believes TRUSTED_PROXIES.
        proxy_headers=False,
        ssl_context_factory=(lambda *_: certificates.create_reloading_context(settings))
        if settings.tls_certificate
        else None,
    )
    server = uvicorn.Server(config)
    gc.freeze()  # a full collection would visit 150,000 objects of modules and routes while no thread runs
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=listeners.api or None)
    return 0 if server.started else 1


def is_event(record: logging.LogRecord) -> bool:
    """Return False for what is no news.

    A tunnel that is accepted: runners with a replica look for new coordinators all the time. An answer without an end:
    whoever left it so has said why.
    """
    said = str(record.msg)
    is_accepted = record.levelno <= logging.INFO and "[accepted]" in said
    return not (is_accepted or said == "ASGI callable returned without completing response.")


def _take_files() -> None:
    """Allow as many open files as this process may have: connections that never speak would take the first 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _give_back_memory() -> None:
    """Let malloc give the memory of large bodies back. Other C libraries than glibc have no such setting."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m coordinator")
    parser.add_argument("--sockets", default="", metavar="PATH")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(_arguments().sockets))
