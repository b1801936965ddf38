"""Read the usage of tenants from Redis."""

from __future__ import annotations

from coordinator.access.principal import Principal, Scope
from coordinator.usage import serializers
from jobs.store.tenancy.usage import Usage
from threads_protocol.answers import usage as answers


class UsageQueries:
    """Usage that a principal can read: of all tenants for an admin, otherwise of its own tenant."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage

    def days(self, principal: Principal, tenant: str | None, days: int) -> list[answers.TenantUsage]:
        """Return the usage of the last days, newest first. Reading another tenant's usage requires the scope admin."""
        if tenant is not None and tenant != principal.tenant:
            principal.require(Scope.ADMIN)
        is_for_all = tenant is None and principal.has(Scope.ADMIN)
        tenants = self._usage.tenants() if is_for_all else [tenant or principal.tenant]
        used = self._usage.by_day(tenants, self._usage.today() - days + 1)
        order = sorted(used, key=lambda key: (-key[1], key[0]))
        return [serializers.serialize_usage(*key, used[key]) for key in order]
