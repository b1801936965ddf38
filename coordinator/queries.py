"""Combine the read queries of all domains."""

from __future__ import annotations

from coordinator.audit.queries import AuditQueries
from coordinator.fleet.queries import FleetQueries
from coordinator.jobs.caches.fleet_cache import FleetCache
from coordinator.jobs.caches.worker_table import WorkerTable
from coordinator.jobs.queries import JobQueries
from coordinator.telemetry.queries import TelemetryQueries
from coordinator.tenants.queries import TenantQueries
from coordinator.usage.queries import UsageQueries
from jobs.settings import Settings
from jobs.store import Store


class Queries:
    """Queries of all domains over one Redis connection, with a shared cache of the fleet.

    Pass `table` to share one worker table between several instances.
    """

    def __init__(self, store: Store, settings: Settings, table: WorkerTable | None = None) -> None:
        self.store = store
        self.settings = settings
        self.worker_table = table or WorkerTable()
        self.fleet_cache = FleetCache(store, self.worker_table)
        self.jobs = JobQueries(store, self.fleet_cache)
        self.fleet = FleetQueries(store, settings, self.jobs, self.worker_table)
        self.tenants = TenantQueries(store)
        self.telemetry = TelemetryQueries(store)
        self.audit = AuditQueries(store.audit_log, settings.audit_file)
        self.usage = UsageQueries(store.usage)
