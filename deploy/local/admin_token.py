"""Admin token of the local cluster, stored in a file with mode 0600 and in the cluster's Redis."""

from __future__ import annotations

from contextlib import suppress

from deploy.local import private_files
from jobs.settings import LOCAL_FOLDER
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tokens import Tokens

#: File in which the `cluster` command finds the token.
FILE = LOCAL_FOLDER / "token"
#: Name of the token in the cluster's list of tokens.
_NAME = "local"


def ensure(redis_url: str) -> str:
    """Return the token. Create it if Redis does not have it. Raises connection.Unreachable."""
    store = private_files.token_store(redis_url)
    return read_valid_token(store) or private_files.renew_token(store, FILE, _NAME, "admin")


def read_valid_token(store: Tokens) -> str:
    """Return the token in the file, or "" if Redis does not have it."""
    with suppress(OSError):
        given = tokens.parse_credential(FILE.read_text().strip())
        stored = store.get(given.id) if given else None
        if given and stored and given.matches(stored.digest):
            FILE.chmod(0o600)
            return given.text
    return ""
