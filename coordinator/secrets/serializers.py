"""Serialize secrets."""

from __future__ import annotations

from coordinator import decoding
from jobs.store.tenancy.secrets import Secret
from threads_protocol.answers import secrets as answers


def serialize_secret(tenant: str, secret: Secret, *, readable: bool) -> answers.Secret:
    """Return a secret without its value."""
    return {
        "tenant": tenant,
        "name": secret.name,
        "changed": decoding.format_ms(secret.changed),
        "key": secret.key,
        "readable": readable,
    }
