"""Admin token of the local cluster. It is stored in a file with mode 0600, and its digest is in Redis."""

from __future__ import annotations

from contextlib import suppress

from deploy.local import private_files
from jobs.settings import LOCAL_FOLDER
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tokens import Tokens

#: File from which the `cluster` command reads the token.
FILE = LOCAL_FOLDER / "token"
#: Name of the token in the list of API tokens.
_NAME = "local"


def ensure(redis_url: str) -> str:
    """Return the admin token. If Redis does not have it, create a new one. Raises connection.Unreachable."""
    store = private_files.token_store(redis_url)
    return read_valid_token(store) or private_files.renew_token(store, FILE, _NAME, "admin")


def read_valid_token(store: Tokens) -> str:
    """Return the token from the file, or "" if Redis does not have the token."""
    with suppress(OSError):
        given = tokens.parse_credential(FILE.read_text().strip())
        stored = store.get(given.id) if given else None
        if given and stored and given.matches(stored.digest):
            FILE.chmod(0o600)
            return given.text
    return ""
