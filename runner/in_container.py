"""Entry point of a runner in a container (`python -m runner.in_container`). Programs in the container cannot read the
runner's token.

runner/token_keeper.py explains how the runner gets its token, and why the runner must be the first process.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import NoReturn

from jobs import logs
from jobs.network import exposure
from jobs.settings import SECRETS_FOLDER, load, load_for, override_worker_token
from runner import __main__ as runner
from runner import token_keeper
from runner.programs import processes

log = logging.getLogger(__name__)

#: PID of the first process in a container. Processes in the container cannot kill it, and its exit ends them all.
_FIRST = 1


def token_exposure() -> str:
    """Return the reason why programs could read the runner's token, or an empty string if they cannot."""
    if os.getpid() != _FIRST:
        return (
            "the runner is not the first process of its container, so programs could kill it and get its token:"
            " do not use an init process or a shared process namespace"
        )
    if load().worker_token:
        return (
            f"every program here could read WORKER_TOKEN or {SECRETS_FOLDER}/worker_token: pass the token only to the"
            " container of the token keeper (docs/operations.md)"
        )
    return ""


def _end(*_: object) -> NoReturn:
    raise SystemExit(0)


def main() -> int:
    processes.hide()
    # The first process of a container receives only signals that it handles. The runner later sets its own handlers.
    signal.signal(signal.SIGTERM, _end)
    settings = load_for("runner")
    logs.configure(settings.log_level, "runner", host=settings.host_name())
    if why := token_exposure():
        log.error("%s", why)
        return exposure.REFUSED
    override_worker_token(token_keeper.fetch())
    return runner.main()


if __name__ == "__main__":
    sys.exit(main())
