"""Everything that a replica reads for the API, one object a domain."""

from __future__ import annotations

from coordinator.fleet.queries import FleetQueries
from coordinator.jobs.fleet_cache import FleetCache
from coordinator.jobs.queries import JobQueries
from coordinator.telemetry.queries import TelemetryQueries
from jobs.settings import Settings
from jobs.store.leases import Leases


class Queries:
    """The queries of every domain over one connection; they share one copy of the fleet."""

    def __init__(self, leases: Leases, settings: Settings) -> None:
        self.leases = leases
        self.settings = settings
        self.fleet_cache = FleetCache(leases)
        self.jobs = JobQueries(leases, self.fleet_cache)
        self.fleet = FleetQueries(leases, settings, self.jobs)
        self.telemetry = TelemetryQueries(leases)
