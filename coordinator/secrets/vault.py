"""Secrets of tenants: encrypted before they reach Redis, and opened here alone."""

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
    """Outcome of putting secrets under the first key."""

    rotated: int
    #: Secrets whose key is missing, or that were changed in Redis, as tenant/name.
    unreadable: list[str]


class Vault:
    """Secrets over one store. No route answers with what `values` returns: it is for runs of programs."""

    def __init__(self, store: Secrets, keys: Keys) -> None:
        self._store = store
        self.keys = keys

    def put(self, tenant: str, name: str, value: str, actor: Actor) -> None:
        """Set a secret, unless it has this value.

        Conflict beyond MAX_SECRETS; UnknownTenant; MissingSetting without a key.
        """
        sealed = self.keys.seal(tenant, name, value)
        if self._is_set(tenant, name, value):
            return
        how = self._store.put(tenant, name, sealed, actor)
        if how == "missing":
            raise errors.UnknownTenant(tenant)
        if how == "full":
            most = f"tenant {tenant} has {secrets.MAX_SECRETS} secrets, as many as it may have"
            raise errors.Conflict(f"{most}; delete one first", field="name")

    def _is_set(self, tenant: str, name: str, value: str) -> bool:
        """Return True when the secret has this value, under the first key. A call that is repeated changes nothing."""
        stored = self._store.sealed(tenant, [name]).get(name)
        if stored is None or stored.key != self.keys.current:
            return False
        try:
            return self.keys.open(tenant, name, stored) == value
        except errors.Broken:
            return False

    def remove(self, tenant: str, name: str, actor: Actor) -> None:
        """Delete a secret. NotFound when there is none."""
        if not self._store.remove(tenant, name, actor):
            raise missing(tenant, [name])

    def all(self, tenant: str) -> list[Secret]:
        """Return a tenant's secrets by name, without their values."""
        return self._store.all(tenant)

    def values(self, tenant: str, names: Sequence[str]) -> dict[str, str]:
        """Return the values of a tenant's secrets. NotFound names those that are missing; else errors as Keys.open."""
        stored = self._store.sealed(tenant, names)
        if lacking := [name for name in names if name not in stored]:
            raise missing(tenant, lacking)
        return {name: self.keys.open(tenant, name, sealed) for name, sealed in stored.items()}

    def rotate(self, tenants: Sequence[str], actor: Actor) -> Rotation:
        """Encrypt every secret of these tenants with the first key. MissingSetting without a key."""
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
    """Return the error for secrets that are not there."""
    return errors.NotFound(f"tenant {tenant} has no secret {', '.join(names)}; list them with GET /api/secrets")
