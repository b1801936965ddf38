"""Run one coordinator with `python -m coordinator`.

With `--sockets PATH`, the process receives its listening sockets over the Unix socket PATH.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # Garbage collection during the imports would take a tenth of the start; main() enables it.

import argparse
import contextlib
import ctypes
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
from jobs.settings import load_for

log = logging.getLogger("coordinator")

#: Maximum number of open files of the process.
_MAX_FILES = 16384
#: mallopt(3) options with values in bytes: the thresholds for returning free memory and for using mmap.
#: By default, glibc raises both thresholds, and keeps up to 64 MiB of memory after a large request body.
_M_TRIM_THRESHOLD, _TRIM_BYTES = -1, 4 << 20
_M_MMAP_THRESHOLD, _MMAP_BYTES = -3, 1 << 20
#: mallopt(3) option: the maximum number of arenas. By default, each thread that handles requests has its own arena,
#: which keeps free memory.
_M_ARENA_MAX, _ARENAS = -8, 2


def main(handed_over_at: str = "") -> int:
    """Run the coordinator until a signal arrives, and return the exit code.

    See `sockets.listen` for `handed_over_at`.
    """
    settings = load_for("coordinator")
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
        exposure.ExposureError,
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
    _raise_file_limit()
    _configure_malloc()
    logging.getLogger("uvicorn.error").addFilter(is_relevant)
    config = uvicorn.Config(
        app.create(settings, metrics=listeners.metrics),
        host=settings.bind,
        port=settings.coordinator_port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
        http=BoundedProtocol,
        # Runner tunnels use WebSockets and send their own keep-alive messages every five seconds.
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE,
        ws_per_message_deflate=False,
        ws_ping_interval=None,
        # By default, uvicorn trusts proxy headers from every local process.
        # client_address.py trusts only TRUSTED_PROXIES.
        proxy_headers=False,
        ssl_context_factory=(lambda *_: certificates.create_reloading_context(settings))
        if settings.tls_certificate
        else None,
    )
    server = uvicorn.Server(config)
    gc.enable()
    gc.freeze()  # exclude 150,000 long-lived objects from garbage collection, which pauses all threads
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=listeners.api or None)
    return 0 if server.started else 1


def is_relevant(record: logging.LogRecord) -> bool:
    """Return False for two frequent log messages of uvicorn that contain no useful information.

    One message reports each accepted runner tunnel. The other reports an incomplete response, whose cause is logged
    separately.
    """
    message = str(record.msg)
    is_accepted = record.levelno <= logging.INFO and "[accepted]" in message
    return not (is_accepted or message == "ASGI callable returned without completing response.")


def _raise_file_limit() -> None:
    """Raise the limit on open files, because idle connections could exhaust the default of 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _configure_malloc() -> None:
    """Configure glibc's malloc to return the memory of large request bodies to the system."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, _ARENAS)
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m coordinator")
    parser.add_argument("--sockets", default="", metavar="PATH")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(_arguments().sockets))
