"""Key that encrypts the secrets of the local cluster. It is stored in a file with mode 0600.

Secrets in .cluster/redis cannot be decrypted without this key.
"""

from __future__ import annotations

import secrets

from jobs.settings import LOCAL_FOLDER

FILE = LOCAL_FOLDER / "secrets_key"


def ensure() -> str:
    """Return the key that encrypts secrets. The first start creates it."""
    FILE.touch(mode=0o600)
    FILE.chmod(0o600)
    if not FILE.read_text().strip():  # The file is empty if an earlier start was killed
        FILE.write_text(f"{secrets.token_hex(32)}\n")
    # The value of an environment variable must be a single line.
    return ",".join(FILE.read_text().split())
