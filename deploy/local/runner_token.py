"""Token of the local cluster's runner: new at each start, in a file for its user alone."""

from __future__ import annotations

import contextlib
import time

from deploy.local import private_files
from jobs.settings import LOCAL_FOLDER, load

#: Where the runner finds it, also when it is started again.
FILE = LOCAL_FOLDER / "runner_token"
#: Name of the runner, and of its token.
NAME = "runner-1"
_AGAIN_SECONDS = 0.1


def forget() -> None:
    """Remove the token of an earlier start, so that a runner waits for its own."""
    FILE.unlink(missing_ok=True)


def ensure(redis_url: str) -> None:
    """Make the token, once a start. Raises connection.Unreachable."""
    if FILE.exists():
        return
    store = private_files.tokens_of(redis_url)
    private_files.renew_token(store, FILE, NAME, "worker", load().host_labels())


def wait_for_token() -> str:
    """Return the token once the starter has made it."""
    while True:
        with contextlib.suppress(FileNotFoundError):  # the starter may forget an earlier one at any moment
            return FILE.read_text().strip()
        time.sleep(_AGAIN_SECONDS)
