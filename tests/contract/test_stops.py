"""Tests stop messages: workers are told at once that some of their leases may have to end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest
import redis

from jobs.models import Device
from jobs.store import Store, keys
from jobs.store.server import connection
from jobs.store.work import stop_messages
from jobs.store.work.leases import Grant
from jobs.store.work.slots import JobFacts
from jobs.worker import heartbeats
from jobs.worker.api import links
from jobs.worker.heartbeats import HeartbeatThread
from jobs.worker.lanes import Task
from jobs.worker.serving import Server
from tests.contract.lease_model import new_job
from tests.contract.test_serving import FakeLane
from tests.integration.live import until

#: Seconds, far more than a stop takes and less than the regular interval.
LONG = 1000.0


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    client = redis.Redis.from_url(redis_url)
    yield Store(client)
    client.close()


def lease(store: Store, job: str, worker: str, lane: str = "0") -> Task:
    """Lease part of a new job, or more of it."""
    if not store.client.exists(keys.job(job)):
        store.jobs.submit([new_job(job, 10**9, "any.normal", estimate_ms=10**7)])
    token = f"{worker}-{lane}-{job}"
    granted = store.leases.lease(job, token, want=10, worker=worker, lane=f"{worker}/{lane}")
    assert isinstance(granted, Grant)
    [facts] = store.slots.facts([job], Device.CPU)
    assert isinstance(facts, JobFacts)
    return Task(facts, granted)


class Hearing:
    """A worker that receives stop messages."""

    def __init__(self, url: str, worker: str) -> None:
        self.heard: queue.Queue[None] = queue.Queue()
        self._ended = False
        client = connection.connect(url, retries=1, timeout=None)
        arguments = (client, worker, lambda: self.heard.put(None), lambda: self._ended)
        self.thread = threading.Thread(target=stop_messages.listen, args=arguments, daemon=True)
        self.thread.start()

    def once(self) -> None:
        """Wait until a message was received."""
        self.heard.get(timeout=30)

    def end(self) -> None:
        self._ended = True


@pytest.fixture
def two(redis_url: str, store: Store) -> Iterator[tuple[Hearing, Hearing]]:
    """Return workers a and b, which are listening."""
    both = Hearing(redis_url, "a"), Hearing(redis_url, "b/c")
    for one in both:
        one.once()  # it listens from now on
    yield both
    for one in both:
        one.end()


@pytest.mark.parametrize("call", ["cancel", "pause"])
def test_those_who_have_leases_hear_once_and_others_not(store: Store, two: tuple[Hearing, Hearing], call: str) -> None:
    a, b = two
    lease(store, "one", "a", "0"), lease(store, "one", "a", "1")
    lease(store, "both", "a"), lease(store, "both", "b/c")
    getattr(store.jobs, call)("one")
    getattr(store.jobs, call)("both")
    store.jobs.submit([new_job("nobodys", 10, "any.normal")])
    store.jobs.cancel("nobodys")
    store.client.publish(keys.stops("b/c"), "the end")
    for heard, times in ((a, 2), (b, 2)):
        for _ in range(times):
            heard.once()
    assert a.heard.empty() and b.heard.empty()


def test_a_worker_listens_again_when_redis_has_dropped_it(store: Store, two: tuple[Hearing, Hearing]) -> None:
    a, _ = two
    task = lease(store, "j", "a")
    store.client.client_kill_filter(_type="pubsub")
    a.once()  # it listens again, and asks at once: what came meanwhile is lost
    while not a.heard.empty():
        a.once()
    store.jobs.cancel("j")
    a.once()
    assert store.leases.heartbeat("j", task.grant.token, 0) == 0


def test_a_lease_is_dropped_long_before_the_next_beat(
    store: Store, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "HEARTBEAT_SECONDS", LONG)
    beaten: queue.Queue[None] = queue.Queue()
    server = Server(store, "a", Device.CPU, [FakeLane("0")], kinds={"sum": 1})
    beating = HeartbeatThread(store, server, store.fleet.birth(), dict, lambda: None, lambda: beaten.put(None))
    hearing = Hearing(redis_url, "a")
    hearing.once()
    beating.start()
    try:
        beaten.get(timeout=30)
        dropped, paused = lease(store, "j", "a", "0"), lease(store, "k", "a", "1")
        server.state.tasks = {task.grant.token: task for task in (dropped, paused)}
        store.jobs.cancel("j")
        store.jobs.pause("k")
        for _ in range(2):
            hearing.once()
            beating.request_heartbeat()
        until(lambda: (dropped.stop, paused.stop) == (2, 1))
    finally:
        hearing.end()
        beating.end()


def test_hurries_close_together_are_one_beat_and_one_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is for leases that were granted as their job was cancelled."""
    monkeypatch.setattr(heartbeats, "HEARTBEAT_SECONDS", LONG)
    beaten: queue.Queue[None] = queue.Queue()
    server = Server(store, "a", Device.CPU, [FakeLane("0")], kinds={"sum": 1})
    beating = HeartbeatThread(store, server, store.fleet.birth(), dict, lambda: None, lambda: beaten.put(None))
    for _ in range(1000):
        beating.request_heartbeat()
    beating.start()
    try:
        beaten.get(timeout=30), beaten.get(timeout=30)
        with pytest.raises(queue.Empty):
            beaten.get(timeout=0.5)
    finally:
        beating.end()


def test_the_way_to_redis_hears(store: Store, redis_url: str) -> None:
    from jobs.settings import Settings

    heard: queue.Queue[None] = queue.Queue()
    link = links.RedisLink(Settings(redis_url=redis_url, worker_id="a"), store, Device.CPU)
    ended = threading.Event()
    link.listen_for_stops(lambda: heard.put(None), ended.is_set)
    heard.get(timeout=30)
    lease(store, "j", "a")
    store.jobs.cancel("j")
    heard.get(timeout=30)
    ended.set()
