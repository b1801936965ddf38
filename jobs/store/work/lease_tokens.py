"""Tokens, by which a lane says which lease is its own."""

from __future__ import annotations

import secrets


def new() -> str:
    """Return a random token, never a counter: a rollback of Redis' log would issue a counter's value twice."""
    return secrets.token_hex(16)
