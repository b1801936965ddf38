"""Read secrets, without their values, for the API."""

from __future__ import annotations

from coordinator.secrets import serializers, vault
from coordinator.secrets.vault import Vault
from threads_protocol.answers import secrets as answers


def list_secrets(secrets: Vault, tenant: str) -> list[answers.Secret]:
    """Return a tenant's secrets without their values, ordered by name."""
    return [
        serializers.serialize_secret(tenant, secret, readable=secrets.keys.has(secret.key))
        for secret in secrets.all(tenant)
    ]


def get_secret(secrets: Vault, tenant: str, name: str) -> answers.Secret:
    """Return one secret without its value. Raise NotFound if it does not exist."""
    for secret in list_secrets(secrets, tenant):
        if secret["name"] == name:
            return secret
    raise vault.missing(tenant, [name])
