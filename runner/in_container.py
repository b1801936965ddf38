"""Start of a runner in a container: `python -m runner.in_container`. Its programs can read no token anywhere.

runner/token_keeper.py says from where it has it, and why it must be the first process.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import NoReturn

from jobs import logs
from jobs.network import exposure
from jobs.settings import SECRETS_FOLDER, give_worker_token, load
from runner import __main__ as runner
from runner import token_keeper
from runner.programs import processes

log = logging.getLogger(__name__)

#: The first process of a container cannot be killed from within, and everything ends with it.
_FIRST = 1


def complaint() -> str:
    """Say why programs here could get at the token; empty: they cannot."""
    if os.getpid() != _FIRST:
        return (
            "the runner is not the first process of its container, so that programs could end it and have its token:"
            " leave out init and a shared process namespace"
        )
    if load().worker_token:
        return (
            f"every program here could read WORKER_TOKEN, or {SECRETS_FOLDER}/worker_token: give it to the container of"
            " the token's keeper alone (docs/operations.md)"
        )
    return ""


def _end(*_: object) -> NoReturn:
    raise SystemExit(0)


def main() -> int:
    processes.hide()
    # The first process is sent only what it handles; the runner sets handlers of its own.
    signal.signal(signal.SIGTERM, _end)
    settings = load()
    logs.configure(settings.log_level, "runner", host=settings.host_name())
    if why := complaint():
        log.error("%s", why)
        return exposure.REFUSED
    give_worker_token(token_keeper.fetch())
    return runner.main()


if __name__ == "__main__":
    sys.exit(main())
