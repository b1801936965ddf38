"""Files that their owner alone can read, and the tokens of the local cluster that lie in such files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from jobs.store import Store
from jobs.store.server import connection
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tokens import Tokens


def write(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read from the first byte on, whole or not at all."""
    new = path.with_suffix(f"{path.suffix}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def tokens_of(redis_url: str) -> Tokens:
    """Return the tokens of the cluster at this Redis."""
    return Store(connection.connect(redis_url, retries=1, timeout=3)).tokens


def renew_token(store: Tokens, file: Path, name: str, scope: str, labels: Sequence[str] = ()) -> str:
    """Make a token, keep it in a file, revoke those of this name and scope before it, and return it."""
    for old in store.all():
        if old.name == name and old.scopes == (scope,):
            store.revoke(old.id)
    minted = tokens.mint()
    store.create(minted, name=name, scopes=(scope,), labels=labels)
    write(file, f"{minted.text}\n".encode())
    return minted.text
