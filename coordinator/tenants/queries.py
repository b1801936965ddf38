"""Read tenants from Redis."""

from __future__ import annotations

from coordinator.access.principal import Principal, Scope
from coordinator.tenants import serializers
from jobs import errors
from jobs.models import DEFAULT_TENANT
from jobs.store import Store
from threads_protocol.answers import tenants as answers


class TenantQueries:
    """Tenants that a principal can read: all for an admin, otherwise its own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self, principal: Principal) -> list[answers.Tenant]:
        """Return the tenants that the principal can read, ordered by name. Unregistered tenants have default values."""
        names = {*self._store.tenants.names(), DEFAULT_TENANT} if principal.has(Scope.ADMIN) else set()
        return self._read(sorted({principal.tenant, *names}))

    def get(self, principal: Principal, name: str) -> answers.Tenant:
        """Return one tenant. Raise NotFound if it is not registered or the principal cannot read it."""
        if principal.tenant != name:
            is_known = principal.has(Scope.ADMIN) and name in (DEFAULT_TENANT, *self._store.tenants.names())
            if not is_known:
                raise errors.missing("tenant", name, "tenant")
        return self._read([name])[0]

    def _read(self, names: list[str]) -> list[answers.Tenant]:
        return [serializers.serialize_tenant(tenant, use) for tenant, use in self._store.tenants.read(names)]
