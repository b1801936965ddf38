"""Routes to replicas: what one coordinator knows of the services, and how many requests it has passed on to each."""

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

#: What a coordinator knows is at most this old.
FRESH_SECONDS = 0.5
#: Seconds between two reports of how many requests it has passed on.
REPORT_SECONDS = 1.0
#: Seconds between two looks of a request at a service that wakes up.
LOOK_SECONDS = 0.25
#: Seconds for which a request waits for a tunnel; the name that stands for one that is missing.
TUNNEL_SECONDS, NO_TUNNEL = 15.0, "none.tunnel.invalid"
#: Seconds for which a replica gets no requests that could not be reached.
EJECTED_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Route:
    """Service as requests come to it."""

    service: Service
    asked: Mapping[str, Any]
    #: Those that this coordinator can reach, and that are ready.
    ready: tuple[Replica, ...]
    #: Why there are no more.
    because: str
    #: Why it does not reach others that are ready, by their jobs.
    unreached: Mapping[str, str] = field(default_factory=dict)
    #: It sleeps, or is waking up: whoever asks it waits for a replica.
    wakes: bool = False
    #: A runner with a ready replica opens its tunnel to here: whoever asks waits for that, for some seconds.
    comes: bool = False
    gate: Gate = field(default_factory=Gate)

    def waits(self, waited: float, seconds: float) -> bool:
        """Return True where a request that has waited so long waits on, `seconds` at most."""
        return (self.wakes and waited < seconds) or (self.comes and waited < min(seconds, TUNNEL_SECONDS))

    @property
    def abilities(self) -> Mapping[str, Any]:
        """Return the abilities of its replicas, as stored when it was served."""
        abilities: Mapping[str, Any] = self.asked["abilities"]
        return abilities

    def answers(self, call: str) -> bool:
        """Return True unless the engine is known to lack the call."""
        known = self.abilities["calls"]
        return known is None or call in known

    @property
    def most(self) -> int:
        """Return how many requests pass at once."""
        return int(self.asked["max_concurrent_requests"])

    @property
    def seconds(self) -> float:
        """Return the longest that a request may wait, and that it may take."""
        return float(self.asked["request_timeout_seconds"])


@dataclass(frozen=True, kw_only=True)
class Page:
    """Service whose leading replica answers browsers."""

    service: Service
    #: The one that leads and is ready, where this coordinator reaches it; else why not.
    leader: Replica | None
    because: str
    #: It is ready, and its runner opens its tunnel to here.
    comes: bool


#: Job, worker and port of a replica.
_Place = tuple[str, str, int]


class Routes:
    """Services by tenant and name, and pages by service: of each tenant and page that somebody asks for, and no other.

    A route that is not fresh is read again at the next request. For one event loop.
    """

    def __init__(self, store: Store, host: str, tunnels: Tunnels | None = None) -> None:
        self._store, self._host = store, host
        self.tunnels = tunnels or Tunnels()
        self.relays = Relays(self.tunnels, host)
        self._probes = Probes()
        self._me = uuid.uuid4().hex[:12]
        self._routes = AsyncCache(self._read_routes)
        self._pages = AsyncCache(self._read_page)
        #: Those of routes that are known, or that a request still has.
        self._gates = WeakValueDictionary[str, Gate]()
        #: Requests passed on now, by job of the replica; places that get none until a time.
        self.busy: Counter[str] = Counter()
        #: Requests that there are now, those that wait included, by service.
        self.asked: Counter[str] = Counter()
        self._new: set[str] = set()
        self._ejected: dict[_Place, float] = {}
        self._reporting: asyncio.Task[None] | None = None

    async def of_tenant(self, tenant: str) -> list[Route]:
        """Return the routes of a tenant by name, of engines whose calls the gateway knows."""
        return list((await self._routes.get(tenant, time.monotonic() - FRESH_SECONDS)).values())

    async def explain_unreached(self, tenant: str) -> dict[str, str]:
        """Return why this coordinator does not reach some replicas of a tenant that are ready, by their jobs."""
        routes = await self.of_tenant(tenant)
        asked = {
            one.job_id: (one.report.address, one.report.port)
            for route in routes
            for one in route.ready
            if one.report and not _is_tunnelled(one.report)
        }
        silent = await self._probes.failures(set(asked.values()))
        found = {
            job: f"nobody answers at {place[0]}, port {place[1]}: {silent[place]}"
            for job, place in asked.items()
            if place in silent
        }
        return found | {job: why for route in routes for job, why in route.unreached.items()}

    async def close(self) -> None:
        """Close the ways to other coordinators, and end looks at replicas."""
        await self._probes.close()
        await self.relays.close()

    async def find(self, tenant: str, model: str) -> Route:
        """Return the route to a model. UnknownModel names those there are."""
        began = time.monotonic()
        known = await self._routes.get(tenant, began - FRESH_SECONDS)
        route = known.get(model)
        if route is None or not route.ready:  # what is known may be older than its first replica
            known = await self._routes.refresh(tenant, began)
            route = known.get(model)
        if route is None:
            names = ", ".join([*known][:20])
            there = f"there are {names}" if names else "there is none; serve one: cluster serve FILE.gguf"
            raise UnknownModel(f"model: tenant {tenant} has no model of this name; {there}", field="model")
        return route

    async def refresh(self, route: Route) -> Route:
        """Return a route as it is now: none of the replicas that are known gave an answer. UnknownModel."""
        await self._routes.refresh(route.service.tenant, time.monotonic())
        return await self.find(route.service.tenant, route.service.name)

    def has_another(self, route: Route, tried: Collection[Replica]) -> bool:
        """Return True for a route with a replica that was not tried, or was where its runner died since."""
        return bool(_others(route, tried))

    def pick(self, route: Route, without: Collection[Replica] = (), prefix: bytes = b"") -> Replica:
        """Return the replica for a request. NoReplica says why there is none.

        Requests with the same prefix come to the same replica, unless it has more than its part of all requests; those
        beyond that, and those without a prefix, to the one with the fewest.
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
        """Return the route once a service that sleeps has a ready replica, at most so many seconds later.

        NoReplica says why there is none; UnknownModel where it was deleted meanwhile.
        """
        began = time.monotonic()
        while route.waits(time.monotonic() - began, seconds):
            await asyncio.sleep(LOOK_SECONDS)
            route = await self.find(route.service.tenant, route.service.name)
        return route

    async def page(self, service_id: str) -> Page | None:
        """Return a service's page, once its leading replica is reached, or some seconds later; None: it has none."""
        began = time.monotonic()
        page = await self._pages.get(service_id, began - FRESH_SECONDS)
        if page is None or page.leader is None:
            page = await self._pages.refresh(service_id, began)
        while page and page.comes and time.monotonic() - began < TUNNEL_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            page = await self._pages.get(service_id, time.monotonic() - FRESH_SECONDS)
        return page

    def name(self, replica: Replica) -> str:
        """Return the host of a replica's URL."""
        assert replica.report
        if self._needs_tunnel(replica.report):
            return self.tunnels.name(replica.report.worker) or NO_TUNNEL
        return f"[{replica.report.address}]" if ":" in replica.report.address else replica.report.address

    def eject(self, replica: Replica) -> None:
        """Give a replica that could not be reached no requests for a while, where there is another one."""
        now = time.monotonic()
        self._ejected = {place: until for place, until in self._ejected.items() if until > now}
        self._ejected[_locate(replica)] = now + EJECTED_SECONDS

    @contextmanager
    def count_request(self, replica: Replica) -> Iterator[None]:
        """Count a request to a replica, so that it is not ended meanwhile."""
        with self._counting(self.busy, replica.job_id):
            yield

    def asking(self, service: Service) -> AbstractContextManager[None]:
        """Count a request to a service, which wakes one that sleeps, and by which it is scaled."""
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
        """Report the counts while there are any, and once when there are none."""
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

    # -- what Redis has ---------------------------------------------------------------------------------------------

    async def _read_routes(self, tenant: str) -> dict[str, Route]:
        """Return a tenant's routes by name, in its order."""

        def asked() -> list[Service]:
            services = self._store.services.of_tenant(tenant)
            return [one for one in services if registry.routes(one.engine) == "openai"]

        found = [self._route(service, replicas) for service, replicas in await self._with_replicas(asked)]
        return {
            one.service.name: one
            for one in found
            if not one.asked.get("unrouted")  # loaded, and served by nobody yet
        }

    async def _read_page(self, service_id: str) -> Page | None:
        def asked() -> list[Service]:
            return [one for one in self._store.services.by_ids([service_id]) if registry.page(one.engine)]

        return next((self._page(*each) for each in await self._with_replicas(asked)), None)

    async def _with_replicas(self, asked: Callable[[], list[Service]]) -> list[tuple[Service, list[Replica]]]:
        """Return those of the services that are not deleted, with their replicas; open ways to these elsewhere."""
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
        """Return why this coordinator cannot reach a replica; empty where nothing speaks against it."""
        report = replica.report
        assert report
        try:
            address = ipaddress.ip_address(report.address)
        except ValueError:
            return f"{report.worker} names no address"
        if _is_tunnelled(report):
            return "" if self.tunnels.name(report.worker) else f"{report.worker} has no tunnel to this coordinator yet"
        if address.is_loopback:
            if report.host == self._host or self.tunnels.name(report.worker):
                return ""
            why = "answers on its own host alone, and this coordinator is elsewhere: set SERVICE_ADDRESS for it"
            return f"{report.worker} {why}"
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            return f"{report.worker} names {address}, at which nothing is asked"
        return ""

    def _needs_tunnel(self, report: Report) -> bool:
        """Return True for one on another host that nobody reaches: replicas of a group name where they meet there."""
        return _is_tunnelled(report) or (is_loopback(report.address) and report.host != self._host)

    def _because(self, service: Service, replicas: list[Replica]) -> str:
        """Return why there are no more ready replicas, in words for people."""
        if service.stopped:
            return f"it is stopped; start it: cluster service restart {service.name}"
        for one in replicas:
            if planning.is_ready(one) and (why := self._unreachable(one)):
                return why
        states = Counter(serializers.state_of(one) for one in replicas)
        if not states:
            return (service.said and f"the last replica died: {service.said}") or "no replica has begun yet"
        said = f"; the last one died: {service.said}" if service.failures and service.said else ""
        return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) + said


def _locate(replica: Replica) -> _Place:
    """Return where a replica answers: one whose runner died is begun elsewhere as the same job."""
    assert replica.report
    return replica.job_id, replica.report.worker, replica.report.port


def _others(route: Route, tried: Collection[Replica]) -> list[Replica]:
    """Return the ready replicas of a route that were not tried."""
    places = {_locate(one) for one in tried}
    return [one for one in route.ready if _locate(one) not in places]


def _is_tunnelled(report: Report) -> bool:
    """Return True where a runner has connected out, because nobody reaches its host."""
    return report.address == tunnel.ADDRESS


def _comes(ready: Collection[Replica], reached: Collection[Replica]) -> bool:
    missing = [one.report for one in ready if one not in reached]
    return not reached and any(report is not None and _is_tunnelled(report) for report in missing)


def _wakes(service: Service) -> bool:
    """Return True for a service that a request wakes, unless its replicas die: then nobody waits for one."""
    return bool(scaling.of(service).idle_ms) and not service.stopped and not service.failures
