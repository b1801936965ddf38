"""Encrypt secrets before they are stored in Redis, and decrypt them for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.secrets.keys import Keys
from jobs import errors
from jobs.models import Actor
from jobs.store.tenancy import secrets
from jobs.store.tenancy.secrets import Secret, Secrets


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """Result of encrypting secrets with the first key."""

    rotated: int
    #: Secrets, as tenant/name, whose key is missing or that were changed in Redis.
    unreadable: list[str]


class Vault:
    """Encrypts, stores and decrypts the secrets of tenants.

    No route may return the result of `values`, which is only for running programs.
    """

    def __init__(self, store: Secrets, keys: Keys) -> None:
        self._store = store
        self.keys = keys

    def put(self, tenant: str, name: str, value: str, actor: Actor) -> None:
        """Set a secret, unless it already has this value.

        Raise Conflict if the tenant has MAX_SECRETS secrets, UnknownTenant, or MissingSetting without a key.
        """
        sealed = self.keys.seal(tenant, name, value)
        if self._is_set(tenant, name, value):
            return
        how = self._store.put(tenant, name, sealed, actor)
        if how == "missing":
            raise errors.UnknownTenant(tenant)
        if how == "full":
            detail = f"tenant {tenant} has {secrets.MAX_SECRETS} secrets, the maximum; delete one first"
            raise errors.Conflict(detail, field="name")

    def _is_set(self, tenant: str, name: str, value: str) -> bool:
        """Return True if the secret already has this value, encrypted with the first key."""
        stored = self._store.sealed(tenant, [name]).get(name)
        if stored is None or stored.key != self.keys.current:
            return False
        try:
            return self.keys.open(tenant, name, stored) == value
        except errors.Broken:
            return False

    def remove(self, tenant: str, name: str, actor: Actor) -> None:
        """Delete a secret. Raise NotFound if it does not exist."""
        if not self._store.remove(tenant, name, actor):
            raise missing(tenant, [name])

    def all(self, tenant: str) -> list[Secret]:
        """Return a tenant's secrets without their values, ordered by name."""
        return self._store.all(tenant)

    def values(self, tenant: str, names: Sequence[str]) -> dict[str, str]:
        """Return the values of a tenant's secrets. Raise NotFound if a secret does not exist.

        Raise the errors of `Keys.open` for values that cannot be decrypted.
        """
        stored = self._store.sealed(tenant, names)
        if absent := [name for name in names if name not in stored]:
            raise missing(tenant, absent)
        return {name: self.keys.open(tenant, name, sealed) for name, sealed in stored.items()}

    def rotate(self, tenants: Sequence[str], actor: Actor) -> Rotation:
        """Encrypt all secrets of these tenants with the first key. Raise MissingSetting if there is no key."""
        self.keys.require()
        rotated, unreadable = 0, []
        for tenant in tenants:
            for secret in self._store.all(tenant):
                if secret.key == self.keys.current:
                    continue
                try:
                    rotated += self._rotate(tenant, secret.name, actor)
                except (errors.MissingSetting, errors.Broken):
                    unreadable.append(f"{tenant}/{secret.name}")
        return Rotation(rotated=rotated, unreadable=unreadable)

    def _rotate(self, tenant: str, name: str, actor: Actor) -> bool:
        before = self._store.sealed(tenant, [name]).get(name)
        if before is None:
            return False
        after = self.keys.seal(tenant, name, self.keys.open(tenant, name, before))
        return self._store.reseal(tenant, name, before, after, actor)


def missing(tenant: str, names: Sequence[str]) -> errors.NotFound:
    """Return the error for secrets that do not exist."""
    return errors.NotFound(f"tenant {tenant} has no secret {', '.join(names)}; list them with GET /api/secrets")
