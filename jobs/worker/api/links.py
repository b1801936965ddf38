"""Connection of a worker to the store of leases: Redis at REDIS_URL, or a coordinator's API at WORKER_API."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from jobs import logs, queues
from jobs.models import Device, Priority
from jobs.network import redis_address
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.server.connection import RedisError, Unreachable, describe_for_log, pause
from jobs.store.work import stop_messages, wakeups
from jobs.store.work.lease_store import LeaseStore
from jobs.worker.api import api_calls
from jobs.worker.api.api_calls import AccessDenied, Api, RequestInterrupted
from jobs.worker.api.api_store import ApiStore
from jobs.worker.serving import Server

log = logging.getLogger(__name__)

#: Timeout in seconds of a heartbeat, short enough to repeat it on a new connection before leases expire.
HEARTBEAT_TIMEOUT_SECONDS = 1.5
#: Delay in seconds before a worker tries again to reach Redis or a coordinator at its start.
RETRY_SECONDS = 0.3


class CannotStart(Exception):
    """The worker cannot start; the message contains the reason and a solution."""


class Link(Protocol):
    """Connection of one worker to the store of leases."""

    #: Name of the worker.
    worker: str

    @property
    def store(self) -> LeaseStore: ...

    def for_heartbeats(self) -> LeaseStore:
        """Return a store with separate connections and a shorter timeout, for heartbeats."""

    def listen_for_stops(self, heard: Callable[[], None], stopped: Callable[[], bool]) -> None:
        """Call `heard` from a thread whenever a lease of this worker may have to stop, until `stopped` returns True."""

    def listen(self, server: Server) -> None:
        """Let the server compute jobs whenever work may be available, until the server or a signal stops the loop."""

    def repeat_request(self) -> None:
        """Make an idle worker request work again, because it can take more jobs. Can be called from any thread."""


class RedisLink:
    """Connection of a worker to Redis. Wake-up signals arrive through RQ."""

    def __init__(self, settings: Settings, store: Store, device: Device) -> None:
        self.worker = settings.worker_name()
        self.store = store
        self._url = settings.redis_url
        self._queue = queues.name(device, Priority.NORMAL)

    def for_heartbeats(self) -> Store:
        return Store(connection.connect(self._url, retries=1, timeout=HEARTBEAT_TIMEOUT_SECONDS), loads=False)

    def listen_for_stops(self, heard: Callable[[], None], stopped: Callable[[], bool]) -> None:
        client = connection.connect(self._url, retries=1, timeout=None)
        arguments = (client, self.worker, heard, stopped)
        threading.Thread(target=stop_messages.listen, args=arguments, name="stops", daemon=True).start()

    def listen(self, server: Server) -> None:
        listening = connection.connect(self._url, retries=0, timeout=None)
        wakeups.listen(
            lambda: wakeups.WakeupWorker(
                server.listened, listening, server.serve, server.stop, server.reconnect, lambda: server.stopping
            ),
            lambda: server.stopping,
        )

    def repeat_request(self) -> None:
        with contextlib.suppress(RedisError):  # An idle worker requests work every two seconds anyway.
            wakeups.ensure_wakeup(self.store, self._queue)


class ApiLink:
    """Connection of a worker to a coordinator. Requests for work wait until work is available."""

    def __init__(self, api: Api, worker: str, device: Device) -> None:
        self.worker = worker
        self.store = ApiStore(api, device)
        self._api, self._device = api, device
        self._ended = threading.Event()

    def for_heartbeats(self) -> ApiStore:
        return ApiStore(self._api.for_heartbeats(HEARTBEAT_TIMEOUT_SECONDS), self._device)

    def listen_for_stops(self, heard: Callable[[], None], stopped: Callable[[], bool]) -> None:
        """Do nothing, because heartbeats report stops within a second."""

    def listen(self, server: Server) -> None:
        """Request work until the server stops. If the token becomes invalid, the process ends itself with SIGTERM."""
        self._api.refused = self._end
        with self._stopped_by_signals(server):
            while not server.stopping:
                try:
                    server.serve("")
                except RequestInterrupted:
                    continue
                except Unreachable as error:
                    if not server.stopping:
                        log.warning("%s", describe_for_log(error))
                        self._rest(server, pause(error, 1.0))

    def repeat_request(self) -> None:
        self._api.repeat_request()

    def _end(self, why: str) -> None:
        if not self._ended.is_set():
            self._ended.set()
            log.error("%s", why)
            os.kill(os.getpid(), signal.SIGTERM)

    @staticmethod
    def _rest(server: Server, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not server.stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    @contextmanager
    def _stopped_by_signals(self, server: Server) -> Iterator[None]:
        """Make SIGTERM and SIGINT stop the server and end the long poll."""

        def stop() -> None:
            server.stop()
            self._api.interrupt()

        with on_signals(stop):
            yield


@contextmanager
def on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT. Has no effect outside the main thread, which alone can set signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(TypeError):  # Python cannot restore a handler that it did not set.
                signal.signal(number, handler)


def check(settings: Settings) -> None:
    """Raise UnusableAddress or UnusableApi if the settings contain no valid address of a store."""
    if settings.worker_api:
        api_calls.check(settings.worker_api, settings.worker_token)
        api_calls.create_tls_context(settings.worker_api_ca)
    else:
        redis_address.check(settings.redis_url)


def connect(settings: Settings, device: Device) -> Link:
    """Wait until the store answers, and return the connection. Raises CannotStart."""
    if not settings.worker_api:
        return RedisLink(settings, wait_for_redis(settings), device)
    place = api_calls.check(settings.worker_api, settings.worker_token)
    api = Api(place, settings.worker_token, authority=settings.worker_api_ca)
    link = ApiLink(api, wait_for_coordinator(api, device), device)
    logs.bind(worker=link.worker)
    if settings.worker_id and settings.worker_id != link.worker:
        raise CannotStart(
            f"WORKER_ID is {settings.worker_id}, but WORKER_TOKEN belongs to {link.worker}: a token is for one worker"
            " and determines its name. Unset WORKER_ID, or create a token for it: cluster token create"
            f" {settings.worker_id} --scopes worker"
        )
    return link


def wait_for_coordinator(api: Api, device: Device) -> str:
    """Wait until the coordinator answers, and return the worker's name, taken from its token. Raises CannotStart."""
    while True:
        try:
            return ApiStore(api, device).register().worker
        except (AccessDenied, connection.CoordinatorRejects) as error:
            raise CannotStart(str(error)) from error
        except Unreachable as error:
            log.warning("waiting: %s", describe_for_log(error))
            time.sleep(pause(error, RETRY_SECONDS))


def wait_for_identity(store: LeaseStore) -> str:
    """Wait until the store answers, and return the identifier of this process.

    The identifier distinguishes processes with the same worker name.
    """
    while True:
        try:
            return store.fleet.birth()
        except Unreachable as error:
            log.warning("waiting: %s", describe_for_log(error))
            time.sleep(pause(error, RETRY_SECONDS))


def wait_for_redis(settings: Settings) -> Store:
    """Wait until Redis answers and contains the functions that a coordinator loads, and return the store."""
    url = settings.redis_url
    store = Store(connection.connect(url), replicas=settings.redis_replicas_to_wait, loads=False)
    while True:
        try:
            wakeups.create_wakeup_job(store)
            store.libraries.check()
            return store
        except Unreachable as error:
            log.warning("waiting for redis at %s: %s", url.rpartition("@")[2].partition("?")[0], error)
            time.sleep(RETRY_SECONDS)
