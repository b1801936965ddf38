"""Secrets as rows, without their values. Reads only."""

from __future__ import annotations

from coordinator.secrets import rows, vault
from coordinator.secrets.rows import SecretRow
from coordinator.secrets.vault import Vault


def secret_list(secrets: Vault, tenant: str) -> list[SecretRow]:
    """Return a tenant's secrets by name."""
    return [
        rows.secret_row(tenant, secret, readable=secrets.keys.has(secret.key)) for secret in secrets.all(tenant)
    ]  # fmt: skip


def one(secrets: Vault, tenant: str, name: str) -> SecretRow:
    """Return one secret. NotFound when there is none."""
    for row in secret_list(secrets, tenant):
        if row["name"] == name:
            return row
    raise vault.missing(tenant, [name])
