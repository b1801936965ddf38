"""Admin token of the local cluster: a file for its user alone, and an ordinary token in its Redis."""

from __future__ import annotations

from contextlib import suppress

from jobs.settings import LOCAL_FOLDER
from jobs.store import Store, connection, tokens
from jobs.store.tokens import Tokens

#: Where the cluster command finds the token.
FILE = LOCAL_FOLDER / "token"
#: Name of the token among the cluster's tokens.
_NAME = "local"


def ensure(redis_url: str) -> str:
    """Return the token; make it at the first start, and when Redis does not know it. Raises connection.Unreachable."""
    store = Store(connection.connect(redis_url, retries=1, timeout=3)).tokens
    kept = _kept(store)
    if kept:
        return kept
    for old in store.all():
        if old.name == _NAME:
            store.revoke(old.id)
    minted = tokens.mint()
    store.create(minted, name=_NAME, scopes=("admin",))
    _write(minted.text)
    return minted.text


def _kept(store: Tokens) -> str:
    """Return the token of the file, if Redis knows it; else nothing."""
    with suppress(OSError):
        given = tokens.parsed(FILE.read_text().strip())
        stored = store.get(given.id) if given else None
        if given and stored and given.matches(stored.digest):
            FILE.chmod(0o600)
            return given.text
    return ""


def _write(text: str) -> None:
    FILE.unlink(missing_ok=True)
    FILE.touch(mode=0o600)
    FILE.write_text(f"{text}\n")
