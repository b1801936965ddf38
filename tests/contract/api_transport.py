"""Serves the worker API for a store that tests control, with a coordinator application on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import uvicorn
from fastapi import FastAPI

from coordinator import app
from coordinator.access.principal import Principal, Scope
from jobs.models import DEFAULT_TENANT, Device
from jobs.partial_reader import GatheredPartials
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.tenancy import tokens
from jobs.store.work.lease_store import LeaseCalls, LeaseStore
from jobs.store.work.leases import Finished, Grant, Merge
from jobs.store.work.slots import Held, Taken
from jobs.worker.api.api_calls import Api, Place
from jobs.worker.api.api_store import ApiResults, ApiStore

#: Function that returns the store of leases as seen by a worker of this name.
Reach = Callable[[str], LeaseStore]


class Served:
    """A replica whose worker requests use the given store, without the coordinator's background work."""

    def __init__(self, url: str, store: Store, **settings: Any) -> None:
        self.store = store
        self._apis: list[Api] = []
        self.app = app.create(Settings(redis_url=url, metrics_port=0, **settings))
        self.app.state.coordinator.cluster.store = store
        self.app.router.lifespan_context = self._only_polls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.place = Place(False, "127.0.0.1", self._listening.getsockname()[1], "")
        config = uvicorn.Config(self.app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listening],), daemon=True)

    @staticmethod
    @asynccontextmanager
    async def _only_polls(api: FastAPI) -> Any:
        api.state.coordinator.polls.start(asyncio.get_running_loop())
        api.state.coordinator.live.start(asyncio.get_running_loop())
        api.state.coordinator.wakes.start(asyncio.get_running_loop())
        yield
        api.state.coordinator.wakes.stop()
        api.state.coordinator.live.stop()
        api.state.coordinator.polls.stop()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        for api in self._apis:
            api.disconnect()
        self._server.should_exit = True
        self._thread.join(30)
        self._listening.close()

    def token(self, name: str, *scopes: str, tenant: str = DEFAULT_TENANT, labels: Sequence[str] = ()) -> str:
        """Create a token with this name."""
        minted, scopes = tokens.mint(), scopes or ("worker",)
        assert self.store.tokens.create(minted, name=name, scopes=scopes, tenant=tenant, labels=labels) == "new"
        return minted.text

    def api(self, token: str, timeout: float = 60.0) -> Api:
        self._apis.append(Api(self.place, token, timeout=timeout))
        return self._apis[-1]

    def worker(self, name: str, device: Device = Device.CPU, poll_seconds: float = 0.0) -> ApiStore:
        """Return the store of leases for a worker with its own token."""
        return ApiStore(self.api(self.token(name)), device, poll_seconds)


@contextmanager
def serve(url: str, store: Store, **settings: Any) -> Iterator[Served]:
    served = Served(url, store, **settings)
    served.start()
    try:
        yield served
    finally:
        served.stop()


class Names:
    """Credentials without tokens in Redis: a bearer token is the name of a worker."""

    @staticmethod
    async def principal_by_bearer(bearer: str) -> Principal:
        return Principal(tenant="default", token="t1", scopes=frozenset({Scope.WORKER}), name=bearer)

    @staticmethod
    async def require_valid(principal: Principal) -> None:
        """Every name is always valid."""


class OverApi:
    """A store of which what workers call goes over the API, each call as the worker that it is of.

    Tokens of leases are as Redis knows them, with their worker's name before them. What tests alone do, such as a beat
    without a worker's row, goes to Redis.
    """

    def __init__(self, served: Served) -> None:
        served.app.state.coordinator.cluster.credentials = Names()
        self._served = served
        self._workers: dict[str, ApiStore] = {}
        self.slots, self.leases, self.results = _Slots(self), _Leases(self), _Results(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._served.store, name)

    @property
    def direct(self) -> Store:
        return self._served.store

    def worker(self, name: str) -> ApiStore:
        if name not in self._workers:
            self._workers[name] = ApiStore(self._served.api(name), Device.CPU, 0.0)
        return self._workers[name]

    def owner(self, token: str) -> ApiStore:
        return self.worker(token.partition("/")[0])


class _Slots:
    def __init__(self, store: OverApi) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.direct.slots, name)

    def next(self, worker: str, queues: Sequence[str], **more: Any) -> Held | Taken | str:
        """A worker that listens to the queues of both devices, as only tests do, uses Redis directly."""
        devices = {queue.partition(".")[0] for queue in queues} - {"any"}
        if len(devices) > 1:
            return self._store.direct.slots.next(worker, queues, **more, owner=f"{worker}/")
        mine = self._store.worker(worker).slots
        mine.device = Device(devices.pop())
        found = mine.next(worker, queues, **{name: value for name, value in more.items() if name != "popped"})
        if not isinstance(found, Taken):
            return found
        return Taken(jobs=tuple((job, f"{worker}/{token}") for job, token in found.jobs), facts=found.facts)

    def leave(self, worker: str) -> None:
        self._store.worker(worker).slots.leave(worker)


class _Leases:
    def __init__(self, store: OverApi) -> None:
        self._store = store

    def lease(self, job: str, token: str, *, worker: str, **more: Any) -> Grant | str:
        """A lease with the token of a worker is requested again by that worker."""
        if "/" in token:
            worker, _, token = token.partition("/")
        answer = self._store.worker(worker).leases.lease(job, token, worker=worker, **more)
        return replace(answer, token=f"{worker}/{token}") if isinstance(answer, Grant) else answer

    def heartbeat(self, job: str, token: str, upto: int) -> int:
        return self._store.direct.leases.heartbeat(job, token, upto)

    def commit(self, job: str, token: str, *more: Any, **named: Any) -> Merge:
        return self._of(token).commit(job, _own(token), *more, **named)

    def done1_all(self, finished: Sequence[Finished], **named: Any) -> list[bool]:
        own = [replace(one, token=_own(one.token)) for one in finished]
        return self._of(finished[0].token).done1_all(own, **named)

    def release(self, job: str, token: str) -> bool:
        return self._of(token).release(job, _own(token))

    def crash(self, job: str, token: str) -> bool:
        return self._of(token).crash(job, _own(token))

    def fail(self, job: str, token: str, error: str) -> bool:
        return self._of(token).fail(job, _own(token), error)

    def fail_unit(self, job: str, token: str, error: str, **named: Any) -> bool:
        return self._of(token).fail_unit(job, _own(token), error, **named)

    def split(self, job: str, token: str, at: int) -> bool:
        return self._of(token).split(job, _own(token), at)

    def _of(self, token: str) -> LeaseCalls:
        return self._store.worker(token.partition("/")[0]).leases


def _own(token: str) -> str:
    """Return a lease's token as its worker knows it."""
    return token.partition("/")[2]


class _Results:
    """Gathers at Redis, which needs no slot there; the rest is a worker's, who knows the digest of what is stored."""

    def __init__(self, store: OverApi) -> None:
        self._store = store

    def gather(self, job: str, limit: int = 256) -> GatheredPartials:
        return self._store.direct.results.gather(job, limit)

    def fold(self, job: str, gathered: GatheredPartials, accumulator: bytes) -> bool:
        return bool(gathered.parts) and self._store.worker("w").results.fold(job, gathered, accumulator)

    def finish(self, job: str, gathered: GatheredPartials, result: bytes) -> bool:
        return self._store.worker("w").results.finish(job, gathered, result)

    def abort(self, job: str, error: str) -> bool:
        return self._knowing(job).abort(job, error)

    def count_derive_crash(self, job: str, token: str, error: str) -> bool:
        return self._knowing(job).count_derive_crash(job, token, error)

    def _knowing(self, job: str) -> ApiResults:
        results = self._store.worker("w").results
        results.remember(job, self.gather(job).digest)
        return results


@contextmanager
def reaching(transport: str, url: str, store: Store) -> Iterator[Reach]:
    """Return how workers reach the store: `redis` or `api`."""
    with contextlib.ExitStack() as stack:
        if transport == "redis":
            yield lambda _: store
        else:
            served = stack.enter_context(serve(url, store))
            yield lambda name: served.worker(name, poll_seconds=0.2)
