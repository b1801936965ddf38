"""Admin token of the local cluster: a file for its user alone, and an ordinary token in its Redis."""

from __future__ import annotations

from contextlib import suppress

from deploy.local import private_files
from jobs.settings import LOCAL_FOLDER
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tokens import Tokens

#: Where the cluster command finds the token.
FILE = LOCAL_FOLDER / "token"
#: Name of the token among the cluster's tokens.
_NAME = "local"


def ensure(redis_url: str) -> str:
    """Return the token; make it at the first start, and when Redis does not know it. Raises connection.Unreachable."""
    store = private_files.tokens_of(redis_url)
    return read_valid_token(store) or private_files.renew_token(store, FILE, _NAME, "admin")


def read_valid_token(store: Tokens) -> str:
    """Return the token of the file, if Redis knows it; else nothing."""
    with suppress(OSError):
        given = tokens.parsed(FILE.read_text().strip())
        stored = store.get(given.id) if given else None
        if given and stored and given.matches(stored.digest):
            FILE.chmod(0o600)
            return given.text
    return ""
