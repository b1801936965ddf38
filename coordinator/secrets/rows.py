"""Rows of secrets, as the API shows them; `schemas.py` describes the same to clients."""

from __future__ import annotations

from typing import TypedDict

from coordinator import decoding
from jobs.store.secrets import Secret


class SecretRow(TypedDict):
    tenant: str
    name: str
    changed: str
    key: str
    readable: bool


def secret_row(tenant: str, secret: Secret, *, readable: bool) -> SecretRow:
    """Return a secret without its value."""
    return {
        "tenant": tenant, "name": secret.name, "changed": decoding.moment_ms(str(secret.changed)), "key": secret.key,
        "readable": readable,
    }  # fmt: skip
