"""Routes to replicas: one coordinator's cache of services, and the number of requests in progress per replica."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from starlette.concurrency import run_in_threadpool

from coordinator.async_cache import AsyncCache
from coordinator.services import planning, scaling, serializers
from coordinator.services.gateway import affinity
from coordinator.services.gateway.gate import Gate
from coordinator.services.gateway.openai import NoReplica, UnknownModel
from coordinator.services.gateway.probes import Probes
from coordinator.services.gateway.relays import Relays
from coordinator.services.gateway.tunnels import Tunnels
from engines import registry
from jobs.network import tunnel
from jobs.network.exposure import is_loopback
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.services import Replica, Report, Service, TunnelEnd

log = logging.getLogger(__name__)

#: Maximum age in seconds of a cached route.
FRESH_SECONDS = 0.5
#: Interval in seconds between reports of the number of requests in progress.
REPORT_SECONDS = 1.0
#: Interval in seconds at which a request checks a service that is waking up.
POLL_SECONDS = 0.25
#: Seconds for which a request waits for a tunnel.
#: Placeholder for the host name of a missing tunnel.
TUNNEL_SECONDS, NO_TUNNEL = 15.0, "none.tunnel.invalid"
#: Seconds for which an unreachable replica receives no requests.
EJECTED_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Route:
    """A service as a target of requests."""

    service: Service
    asked: Mapping[str, Any]
    #: Ready replicas that this coordinator can reach.
    ready: tuple[Replica, ...]
    #: Reason why the service has no more ready replicas.
    because: str
    #: Reasons why this coordinator cannot reach other ready replicas, by job ID.
    unreached: Mapping[str, str] = field(default_factory=dict)
    #: True if the service is asleep or waking up, so that requests wait for a replica.
    wakes: bool = False
    #: True if a runner with a ready replica is opening a tunnel to this coordinator, so requests wait some seconds.
    comes: bool = False
    gate: Gate = field(default_factory=Gate)

    def waits(self, waited: float, seconds: float) -> bool:
        """Return True if a request that has waited `waited` seconds keeps waiting, up to `seconds`."""
        return (self.wakes and waited < seconds) or (self.comes and waited < min(seconds, TUNNEL_SECONDS))

    @property
    def abilities(self) -> Mapping[str, Any]:
        """Return the abilities of the service's replicas, stored when the service was created."""
        abilities: Mapping[str, Any] = self.asked["abilities"]
        return abilities

    def answers(self, call: str) -> bool:
        """Return False if the engine is known not to support the call."""
        known = self.abilities["calls"]
        return known is None or call in known

    @property
    def most(self) -> int:
        """Return the maximum number of concurrent requests."""
        return int(self.asked["max_concurrent_requests"])

    @property
    def seconds(self) -> float:
        """Return the maximum time in seconds for which a request can wait, and can take."""
        return float(self.asked["request_timeout_seconds"])


@dataclass(frozen=True, kw_only=True)
class Page:
    """A service whose leading replica serves web pages."""

    service: Service
    #: The ready leading replica, or None if this coordinator cannot reach it.
    leader: Replica | None
    because: str
    #: True if the replica is ready and its runner is opening a tunnel to this coordinator.
    comes: bool


#: Job, worker and port of a replica.
_Place = tuple[str, str, int]


class Routes:
    """Cache of services by tenant and name, and of pages by service. Loads only requested tenants and pages.

    An outdated route is refreshed by the next request. Use it from one event loop.
    """

    def __init__(self, store: Store, host: str, tunnels: Tunnels | None = None) -> None:
        self._store, self._host = store, host
        self.tunnels = tunnels or Tunnels()
        self.relays = Relays(self.tunnels, host)
        self._probes = Probes()
        self._me = uuid.uuid4().hex[:12]
        self._routes = AsyncCache(self._read_routes)
        self._pages = AsyncCache(self._read_page)
        #: Gates of cached routes, and of routes that requests still use.
        self._gates = WeakValueDictionary[str, Gate]()
        #: Number of requests in progress, by the replica's job.
        self.busy: Counter[str] = Counter()
        #: Number of requests including waiting ones, by service.
        self.asked: Counter[str] = Counter()
        self._new: set[str] = set()
        self._ejected: dict[_Place, float] = {}
        self._reporting: asyncio.Task[None] | None = None

    async def of_tenant(self, tenant: str) -> list[Route]:
        """Return a tenant's routes by name, for engines whose calls the gateway supports."""
        return list((await self._routes.get(tenant, time.monotonic() - FRESH_SECONDS)).values())

    async def explain_unreached(self, tenant: str) -> dict[str, str]:
        """Return why this coordinator cannot reach some ready replicas of a tenant, by job ID."""
        routes = await self.of_tenant(tenant)
        asked = {
            one.job_id: (one.report.address, one.report.port)
            for route in routes
            for one in route.ready
            if one.report and not _is_tunnelled(one.report)
        }
        silent = await self._probes.failures(set(asked.values()))
        found = {
            job: f"cannot connect to {place[0]}, port {place[1]}: {silent[place]}"
            for job, place in asked.items()
            if place in silent
        }
        return found | {job: why for route in routes for job, why in route.unreached.items()}

    async def close(self) -> None:
        """Close relays to other coordinators, and cancel probes of replicas."""
        await self._probes.close()
        await self.relays.close()

    async def find(self, tenant: str, model: str) -> Route:
        """Return the route to a model. Raises UnknownModel, which lists the existing models."""
        began = time.monotonic()
        known = await self._routes.get(tenant, began - FRESH_SECONDS)
        route = known.get(model)
        if route is None or not route.ready:  # the cache can be older than the first replica
            known = await self._routes.refresh(tenant, began)
            route = known.get(model)
        if route is None:
            names = ", ".join([*known][:20])
            there = f"it has {names}" if names else "it has no models; serve one with: cluster serve FILE.gguf"
            raise UnknownModel(f"model: tenant {tenant} has no model with this name; {there}", field="model")
        return route

    async def refresh(self, route: Route) -> Route:
        """Return a refreshed route, after all known replicas failed. Raises UnknownModel."""
        await self._routes.refresh(route.service.tenant, time.monotonic())
        return await self.find(route.service.tenant, route.service.name)

    def has_another(self, route: Route, tried: Collection[Replica]) -> bool:
        """Return True if a route has a replica that was not tried, or that has restarted on another runner since."""
        return bool(_others(route, tried))

    def pick(self, route: Route, without: Collection[Replica] = (), prefix: bytes = b"") -> Replica:
        """Return the replica for a request. Raises NoReplica, which explains why no replica is ready.

        Requests with the same prefix use the same replica unless it is overloaded. Other requests use the replica with
        the fewest requests in progress.
        """
        now = time.monotonic()
        usable = _others(route, without)
        fresh = [one for one in usable if self._ejected.get(_locate(one), 0.0) <= now]
        if not (fresh or usable):
            name = route.service.name
            raise NoReplica(f"no replica of {name} is ready: {route.because}", because=route.because)
        there = fresh or usable
        if prefix and (home := affinity.chosen(prefix, [(one.job_id, self.busy[one.job_id]) for one in there])):
            return next(one for one in there if one.job_id == home)
        return min(there, key=lambda one: (self.busy[one.job_id], one.busy, random.random()))

    async def awake(self, route: Route, seconds: float) -> Route:
        """Wait up to `seconds` until a sleeping service has a ready replica, and return the refreshed route.

        Raises UnknownModel if the service was deleted.
        """
        began = time.monotonic()
        while route.waits(time.monotonic() - began, seconds):
            await asyncio.sleep(POLL_SECONDS)
            route = await self.find(route.service.tenant, route.service.name)
        return route

    async def page(self, service_id: str) -> Page | None:
        """Return a service's page, or None if it has no page.

        Waits some seconds until its leading replica is reachable.
        """
        began = time.monotonic()
        page = await self._pages.get(service_id, began - FRESH_SECONDS)
        if page is None or page.leader is None:
            page = await self._pages.refresh(service_id, began)
        while page and page.comes and time.monotonic() - began < TUNNEL_SECONDS:
            await asyncio.sleep(POLL_SECONDS)
            page = await self._pages.get(service_id, time.monotonic() - FRESH_SECONDS)
        return page

    def name(self, replica: Replica) -> str:
        """Return the host name in a replica's URL."""
        assert replica.report
        if self._needs_tunnel(replica.report):
            return self.tunnels.name(replica.report.worker) or NO_TUNNEL
        return f"[{replica.report.address}]" if ":" in replica.report.address else replica.report.address

    def eject(self, replica: Replica) -> None:
        """Send no requests to an unreachable replica for EJECTED_SECONDS, if there is another replica."""
        now = time.monotonic()
        self._ejected = {place: until for place, until in self._ejected.items() if until > now}
        self._ejected[_locate(replica)] = now + EJECTED_SECONDS

    @contextmanager
    def count_request(self, replica: Replica) -> Iterator[None]:
        """Count a request to a replica, so that the replica is not stopped during the request."""
        with self._counting(self.busy, replica.job_id):
            yield

    def asking(self, service: Service) -> AbstractContextManager[None]:
        """Count a request to a service, which wakes a sleeping service and is used for autoscaling."""
        self._new.add(service.service_id)
        return self._counting(self.asked, service.service_id)

    @contextmanager
    def _counting(self, counts: Counter[str], what: str) -> Iterator[None]:
        counts[what] += 1
        if self._reporting is None or self._reporting.done():
            self._reporting = asyncio.get_running_loop().create_task(self._report())
        try:
            yield
        finally:
            counts[what] -= 1

    async def _report(self) -> None:
        """Report the counts while there are requests, and once more when there are none."""
        while self.busy or self.asked:
            busy, asked, new = dict(self.busy), dict(self.asked), self._new
            self._new = set()
            try:
                await run_in_threadpool(self._tell, busy, asked, new)
            except connection.Unreachable:
                self._new |= new
            for counts, told in ((self.busy, busy), (self.asked, asked)):
                for what, count in told.items():
                    if not count and not counts[what]:
                        del counts[what]
            await asyncio.sleep(REPORT_SECONDS)

    def _tell(self, busy: Mapping[str, int], asked: Mapping[str, int], new: Collection[str]) -> None:
        self._store.services.ask(self._me, asked, new)
        self._store.services.count_busy(self._me, busy)

    # -- reading from Redis ----------------------------------------------------------------------------------------

    async def _read_routes(self, tenant: str) -> dict[str, Route]:
        """Return a tenant's routes by name, in the order of the store."""

        def asked() -> list[Service]:
            services = self._store.services.of_tenant(tenant)
            return [one for one in services if registry.routes(one.engine) == "openai"]

        found = [self._route(service, replicas) for service, replicas in await self._with_replicas(asked)]
        return {
            one.service.name: one
            for one in found
            if not one.asked.get("unrouted")  # loaded, but not serving yet
        }

    async def _read_page(self, service_id: str) -> Page | None:
        def asked() -> list[Service]:
            return [one for one in self._store.services.by_ids([service_id]) if registry.page(one.engine)]

        return next((self._page(*each) for each in await self._with_replicas(asked)), None)

    async def _with_replicas(self, asked: Callable[[], list[Service]]) -> list[tuple[Service, list[Replica]]]:
        """Return services that are not deleted with their replicas. Opens relays to unreachable replicas."""
        services, replicas, elsewhere = await run_in_threadpool(self._read, asked)
        self.relays.reach(elsewhere)
        return [(one, replicas[one.service_id]) for one in services]

    def _read(
        self, asked: Callable[[], list[Service]]
    ) -> tuple[list[Service], dict[str, list[Replica]], dict[str, TunnelEnd]]:
        services = [one for one in asked() if not one.deleted]
        replicas = self._store.services.replicas([one.service_id for one in services])
        reports = [one.report for several in replicas.values() for one in several if planning.is_ready(one)]
        missing = {
            report.worker
            for report in reports
            if report and self._needs_tunnel(report) and not self.tunnels.name(report.worker)
        }
        return services, replicas, self._store.services.tunnels(sorted(missing))

    def _route(self, service: Service, replicas: list[Replica]) -> Route:
        ready = [one for one in replicas if planning.is_ready(one)]
        unreached = {one.job_id: why for one in ready if (why := self._unreachable(one))}
        reached = [one for one in ready if one.job_id not in unreached]
        return Route(
            service=service,
            asked=json.loads(service.asked),
            ready=tuple(reached),
            because=self._because(service, replicas),
            wakes=not ready and _wakes(service),
            comes=_comes(ready, reached),
            gate=self._gates.setdefault(service.service_id, Gate()),
            unreached=unreached,
        )

    def _page(self, service: Service, replicas: list[Replica]) -> Page:
        leader = planning.leader(service, replicas)
        because = self._because(service, replicas)
        if leader is None or leader.report is None or not self._unreachable(leader):
            return Page(service=service, leader=leader, because=because, comes=False)
        return Page(service=service, leader=None, because=because, comes=self._needs_tunnel(leader.report))

    def _unreachable(self, replica: Replica) -> str:
        """Return why this coordinator cannot reach a replica, or an empty string."""
        report = replica.report
        assert report
        try:
            address = ipaddress.ip_address(report.address)
        except ValueError:
            return f"{report.worker} reported an invalid address"
        if _is_tunnelled(report):
            return "" if self.tunnels.name(report.worker) else f"{report.worker} has no tunnel to this coordinator yet"
        if address.is_loopback:
            if report.host == self._host or self.tunnels.name(report.worker):
                return ""
            why = "listens only on its own host, and this coordinator is on another host: set its SERVICE_ADDRESS"
            return f"{report.worker} {why}"
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            return f"{report.worker} reported the unusable address {address}"
        return ""

    def _needs_tunnel(self, report: Report) -> bool:
        """Return True for a replica on another host that is reachable only through a tunnel."""
        return _is_tunnelled(report) or (is_loopback(report.address) and report.host != self._host)

    def _because(self, service: Service, replicas: list[Replica]) -> str:
        """Explain why the service has no more ready replicas."""
        if service.stopped:
            return f"it is stopped; start it: cluster service restart {service.name}"
        for one in replicas:
            if planning.is_ready(one) and (why := self._unreachable(one)):
                return why
        states = Counter(serializers.state_of(one) for one in replicas)
        if not states:
            return (service.said and f"the last replica failed: {service.said}") or "no replica has started yet"
        said = f"; the last one failed: {service.said}" if service.failures and service.said else ""
        return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) + said


def _locate(replica: Replica) -> _Place:
    """Return the location of a replica, which changes if the job restarts on another runner."""
    assert replica.report
    return replica.job_id, replica.report.worker, replica.report.port


def _others(route: Route, tried: Collection[Replica]) -> list[Replica]:
    """Return the ready replicas of a route that were not tried."""
    places = {_locate(one) for one in tried}
    return [one for one in route.ready if _locate(one) not in places]


def _is_tunnelled(report: Report) -> bool:
    """Return True if a runner has opened a tunnel because coordinators cannot reach its host."""
    return report.address == tunnel.ADDRESS


def _comes(ready: Collection[Replica], reached: Collection[Replica]) -> bool:
    missing = [one.report for one in ready if one not in reached]
    return not reached and any(report is not None and _is_tunnelled(report) for report in missing)


def _wakes(service: Service) -> bool:
    """Return True if a request wakes the service. Requests do not wait for a service with failing replicas."""
    return bool(scaling.of(service).idle_ms) and not service.stopped and not service.failures
