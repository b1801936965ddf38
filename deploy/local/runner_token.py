"""Token of the local cluster's runner: new at each start, in a file for its user alone."""

from __future__ import annotations

import contextlib
import time

from jobs.settings import LOCAL_FOLDER, load
from jobs.store import Store, connection, tokens

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
    store = Store(connection.connect(redis_url, retries=1, timeout=3)).tokens
    for old in store.all():
        if old.name == NAME and old.scopes == ("worker",):
            store.revoke(old.id)
    minted = tokens.mint()
    store.create(minted, name=NAME, scopes=("worker",), labels=load().host_labels())
    _write(minted.text)


def _write(text: str) -> None:
    """Write the file whole: the runner waits for it."""
    new = FILE.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text(f"{text}\n")
    new.replace(FILE)


def awaited() -> str:
    """Return the token once the starter has made it."""
    while True:
        with contextlib.suppress(FileNotFoundError):  # the starter may forget an earlier one at any moment
            return FILE.read_text().strip()
        time.sleep(_AGAIN_SECONDS)
