"""Secrets as rows, without their values. Reads only."""

from __future__ import annotations

from coordinator.secrets import serializers, vault
from coordinator.secrets.vault import Vault
from threads_protocol.answers import secrets as answers


def secret_list(secrets: Vault, tenant: str) -> list[answers.Secret]:
    """Return a tenant's secrets by name."""
    return [
        serializers.serialize_secret(tenant, secret, readable=secrets.keys.has(secret.key))
        for secret in secrets.all(tenant)
    ]


def one(secrets: Vault, tenant: str, name: str) -> answers.Secret:
    """Return one secret. NotFound when there is none."""
    for row in secret_list(secrets, tenant):
        if row["name"] == name:
            return row
    raise vault.missing(tenant, [name])
