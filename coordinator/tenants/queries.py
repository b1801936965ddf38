"""Rows of tenants, read from Redis and shaped. Reads only."""

from __future__ import annotations

from coordinator.access.principal import Principal, Scope
from coordinator.tenants import serializers
from jobs import errors
from jobs.models import DEFAULT_TENANT
from jobs.store import Store
from threads_protocol.answers import tenants as answers


class TenantQueries:
    """Tenants, as far as the principal sees them: an admin all, everybody else their own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self, principal: Principal) -> list[answers.Tenant]:
        """Return the tenants by name; `default` and the principal's own whether they are registered or not."""
        names = {*self._store.tenants.names(), DEFAULT_TENANT} if principal.has(Scope.ADMIN) else set()
        return self._rows(sorted({principal.tenant, *names}))

    def one(self, principal: Principal, name: str) -> answers.Tenant:
        """Return one tenant. NotFound for one that is not registered, or that the principal does not see."""
        if principal.tenant != name:
            registered = principal.has(Scope.ADMIN) and name in (DEFAULT_TENANT, *self._store.tenants.names())
            if not registered:
                raise errors.missing("tenant", name, "tenant")
        return self._rows([name])[0]

    def _rows(self, names: list[str]) -> list[answers.Tenant]:
        return [serializers.serialize_tenant(tenant, use) for tenant, use in self._store.tenants.read(names)]
