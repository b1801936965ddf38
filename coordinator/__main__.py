"""Runs one coordinator: `python -m coordinator`."""

from __future__ import annotations

import logging
import sys

import uvicorn

from coordinator import app
from coordinator.protocol import BoundedProtocol
from jobs import exposure, logs, settings

log = logging.getLogger("coordinator")


def main() -> int:
    chosen = settings.load()
    logs.configure(chosen.log_level, service="coordinator")
    try:
        exposure.check(chosen)
    except exposure.Exposed as error:
        log.error("%s", error)
        return exposure.REFUSED
    uvicorn.run(
        app.create(chosen), host=chosen.bind, port=chosen.coordinator_port, log_config=None, access_log=False,
        timeout_graceful_shutdown=2, timeout_keep_alive=75, http=BoundedProtocol,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
