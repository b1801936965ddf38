"""Random tokens that identify leases."""

from __future__ import annotations

import secrets


def new() -> str:
    """Return a random lease token. A counter would repeat values after Redis has lost writes."""
    return secrets.token_hex(16)
