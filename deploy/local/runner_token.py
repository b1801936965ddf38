"""Token of the local cluster's runner. Each start of the cluster creates it in a file with mode 0600."""

from __future__ import annotations

import contextlib
import time

from deploy.local import private_files
from jobs.settings import LOCAL_FOLDER, load

#: File from which the runner reads its token.
FILE = LOCAL_FOLDER / "runner_token"
#: Name of the runner, which is also the name of its token.
NAME = "runner-1"
_AGAIN_SECONDS = 0.1


def delete_token() -> None:
    """Delete the token of an earlier start, so that the runner waits for a new token."""
    FILE.unlink(missing_ok=True)


def ensure(redis_url: str) -> None:
    """Create the token of the runner once per start. Raises connection.Unreachable."""
    if FILE.exists():
        return
    store = private_files.token_store(redis_url)
    private_files.renew_token(store, FILE, NAME, "worker", load().host_labels())


def wait_for_token() -> str:
    """Wait until the token of the runner exists, and return it."""
    while True:
        with contextlib.suppress(FileNotFoundError):  # The starter can delete an old token file
            return FILE.read_text().strip()
        time.sleep(_AGAIN_SECONDS)
