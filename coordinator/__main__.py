"""Run one coordinator: `python -m coordinator`."""

from __future__ import annotations

import logging
import sys

import uvicorn

from coordinator import app
from coordinator.protocol import BoundedProtocol
from jobs import exposure, logs
from jobs.settings import load

log = logging.getLogger("coordinator")


def main() -> int:
    settings = load()
    logs.configure(settings.log_level, "coordinator", host=settings.host_name())
    try:
        exposure.check(settings)
    except exposure.Exposed as error:
        log.error("%s", error)
        return exposure.REFUSED
    uvicorn.run(
        app.create(settings), host=settings.bind, port=settings.coordinator_port, log_config=None, access_log=False,
        timeout_graceful_shutdown=2, timeout_keep_alive=75, http=BoundedProtocol,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
