"""Rows of usage, read from Redis and shaped. Reads only."""

from __future__ import annotations

from coordinator.access.principal import Principal, Scope
from coordinator.usage import serializers
from jobs.store.tenancy.usage import Usage
from threads_protocol.answers import usage as answers


class UsageQueries:
    """Usage as far as the principal sees it: an admin all tenants', everybody else their own."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage

    def days(self, principal: Principal, tenant: str | None, days: int) -> list[answers.TenantUsage]:
        """Return the last days, newest first. Forbidden for another tenant's, unless one is an admin."""
        if tenant is not None and tenant != principal.tenant:
            principal.require(Scope.ADMIN)
        everybody = tenant is None and principal.has(Scope.ADMIN)
        tenants = self._usage.tenants() if everybody else [tenant or principal.tenant]
        used = self._usage.by_day(tenants, self._usage.today() - days + 1)
        order = sorted(used, key=lambda place: (-place[1], place[0]))
        return [serializers.serialize_usage(*place, used[place]) for place in order]
