"""Run one coordinator: `python -m coordinator`."""

from __future__ import annotations

import logging
import sys

import uvicorn

from coordinator import app, certificates, client_address, destinations, extras
from coordinator.artifacts import start as artifact_store
from coordinator.artifacts.blobs import WrongStore
from coordinator.protocol import BoundedProtocol
from coordinator.secrets import keys
from jobs import exposure, logs, redis_address
from jobs.settings import load

log = logging.getLogger("coordinator")


def main() -> int:
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
    except (
        exposure.Exposed, keys.UnusableKey, client_address.UnusableProxies, destinations.UnusableNetworks,
        redis_address.UnusableAddress, WrongStore, certificates.UnusableCertificate,
        extras.MissingPackages,
    ) as error:  # fmt: skip
        log.error("%s", error)
        return exposure.REFUSED
    uvicorn.run(
        app.create(settings), host=settings.bind, port=settings.coordinator_port, log_config=None, access_log=False,
        timeout_graceful_shutdown=2, timeout_keep_alive=75, http=BoundedProtocol,
        # Which would believe every process of this machine; client_address.py believes TRUSTED_PROXIES.
        proxy_headers=False,
        ssl_context_factory=(lambda *_: certificates.served(settings)) if settings.tls_certificate else None,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
