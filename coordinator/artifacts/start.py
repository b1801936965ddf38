"""Check the artifact store before a coordinator starts."""

from __future__ import annotations

import logging

from coordinator.artifacts.blobs import Blobs
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection

log = logging.getLogger(__name__)


def check(settings: Settings) -> None:
    """Raise WrongStore if ARTIFACT_URL is not this cluster's store.

    If Redis is not reachable, the first use of the store checks it instead.
    """
    if not settings.artifact_url:
        return
    blobs = Blobs(settings.artifact_url)
    store = Store(connection.connect(settings.redis_url, retries=0, timeout=2))
    try:
        blobs.check(store.files)
    except connection.Unreachable as error:
        log.warning("cannot reach redis, so the artifact store is checked on first use: %s", error)
    finally:
        store.drop_idle_connections()
