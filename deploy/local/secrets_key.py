"""Key of the local cluster's secrets: a file for its user alone. Without it, secrets in .cluster/redis stay closed."""

from __future__ import annotations

import secrets

from jobs.settings import LOCAL_FOLDER

FILE = LOCAL_FOLDER / "secrets_key"


def ensure() -> str:
    """Return the key; make it at the first start."""
    FILE.touch(mode=0o600)
    FILE.chmod(0o600)
    if not FILE.read_text().strip():  # also what a start that was killed has left
        FILE.write_text(f"{secrets.token_hex(32)}\n")
    # On one line, as a variable of the environment.
    return ",".join(FILE.read_text().split())
