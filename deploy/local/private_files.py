"""Private files, which only their owner can read, and tokens in such files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from jobs.store import Store
from jobs.store.server import connection
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tokens import Tokens


def write(path: Path, content: bytes) -> None:
    """Write a file atomically. Its mode is 0600."""
    new = path.with_suffix(f"{path.suffix}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def token_store(redis_url: str) -> Tokens:
    """Return the tokens of the cluster that uses this Redis server."""
    return Store(connection.connect(redis_url, retries=1, timeout=3)).tokens


def renew_token(store: Tokens, file: Path, name: str, scope: str, labels: Sequence[str] = ()) -> str:
    """Create a token, write it to a file, and return it. Revoke older tokens with the same name and scope."""
    for old in store.all():
        if old.name == name and old.scopes == (scope,):
            store.revoke(old.id)
    minted = tokens.mint()
    store.create(minted, name=name, scopes=(scope,), labels=labels)
    write(file, f"{minted.text}\n".encode())
    return minted.text
