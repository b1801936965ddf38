"""Tests live events: in order, once, complete after any reconnection; and what slow listeners lose."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from coordinator.access.principal import ANYONE
from coordinator.events import completion, frames, history, hub, reader, subscription
from coordinator.events import event as events
from coordinator.events import routes as event_routes
from coordinator.events.event import START, Event, merge_events, position
from coordinator.events.hub import Hub
from coordinator.events.reader import Reader
from coordinator.events.subscription import Chunk, Subscription
from coordinator.queries import Queries
from jobs import errors
from jobs.settings import Settings
from jobs.store.unreadable_entries import SKIPS
from tests.contract.lease_model import Bench


def event(number: int, type: str = "submitted", job: str = "j", state: str = "running") -> Event:
    return Event(id=f"{number}-0", fields={"job": job, "type": type, "state": state, "done": "1", "total": "2"})


# -- one listener ---------------------------------------------------------------------------------------------------


@pytest.fixture
def small_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "BACKLOG", 4)


@pytest.mark.usefixtures("small_backlog")
def test_progress_goes_first_then_the_listener_counts_as_lost() -> None:
    async def listen() -> tuple[list[str], Chunk | None]:
        subscription = Subscription(frozenset({"jobs"}))
        for number in range(4):
            subscription.offer(Chunk([event(number)]))
        subscription.offer(Chunk([event(4, "progress")]))
        for number in range(5, 8):
            subscription.offer(Chunk([event(number), event(number, "progress")]))
        kept = [(await subscription.next() or Chunk()).events[0].id for _ in range(7)]
        for number in range(9, 30):
            subscription.offer(Chunk([event(number)]))
        return kept, await subscription.next()

    kept, after = asyncio.run(listen())
    assert kept == [f"{number}-0" for number in (0, 1, 2, 3, 5, 6, 7)]
    assert after is None, "told to start anew"


def test_an_event_that_names_no_tenant_is_not_sent_to_one() -> None:
    topics = Event(id="1-0", fields={"job": "a", "type": "done"}).topics
    assert "jobs" in topics and not events.visible_topics(["jobs", "job:a"], "default") & set(topics)


def test_progress_that_is_replaced_is_left_out_and_order_is_that_of_ids() -> None:
    given = [event(1, "progress"), event(2, "progress", "k"), event(3), event(4, "progress"), event(5, "progress")]
    assert [found.id for found in merge_events(given)] == ["2-0", "3-0", "5-0"]


def test_an_event_is_encoded_once_for_all_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = 0

    def dumps(value: Any) -> str:
        nonlocal encoded
        encoded += 1
        return json.JSONEncoder().encode(value)

    monkeypatch.setattr(events, "json", SimpleNamespace(dumps=dumps))
    chunk = Chunk([event(1), event(2)])
    assert len({chunk.after(START) for _ in range(1000)}) == 1 and encoded == 2
    assert chunk.after(position("1-0")) == event(2).frame and chunk.after(position("2-0")) == b""


@pytest.mark.parametrize("place", ["18446744073709551616-0", "0-18446744073709551616", "99999999999999999999-0"])
def test_a_place_beyond_64_bits_is_refused(place: str) -> None:
    with pytest.raises(Exception, match="below 2"):
        event_routes.check_event_id(place)


# -- streams over a real Redis --------------------------------------------------------------------------------------


class Stage:
    """A coordinator's event hub with a Redis in which the test does the work."""

    def __init__(self, url: str) -> None:
        self.bench = Bench(url)
        self.hub = Hub(self.bench.store.events)
        queries = Queries(self.bench.store, Settings(redis_url=url))
        self.cluster: Any = SimpleNamespace(hub=self.hub, queries=queries)

    def job(self, job: str, since: str | None = None) -> AsyncIterator[bytes]:
        return frames.job_frames(self.cluster, job, since)

    def fleet(self, since: str | None = None, topics: str = "jobs,workers") -> AsyncIterator[bytes]:
        return frames.fleet_frames(self.cluster, frozenset(topics.split(",")), since)

    def done(self, job: str) -> None:
        self.bench.work(want=2)
        assert self.bench.client.hget(f"ct:job:{job}", "state") == b"done"


@pytest.fixture
def stage(any_redis_url: str) -> Iterator[Stage]:
    made = Stage(any_redis_url)
    yield made
    made.bench.client.close()


def play(stage: Stage, scene: Callable[[], Awaitable[Any]]) -> Any:
    """Run a scene in parallel with the hub, when the hub is reading."""
    reads, original = asyncio.Event(), stage.hub.take

    def take(last: str, events: list[Event]) -> None:
        original(last, events)
        reads.set()

    async def run() -> Any:
        stage.hub.take = take  # type: ignore[method-assign]
        stage.hub.start(asyncio.get_running_loop())
        try:
            async with asyncio.timeout(60):
                await reads.wait()
                return await scene()
        finally:
            stage.hub.stop()

    return asyncio.run(run())


async def until(true: Callable[[], Any]) -> None:
    while not true():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.01)


def parsed(frames: list[bytes]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the sent messages as (id, event, data)."""
    found = []
    for frame in b"".join(frames).decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.split("\n") if ": " in line)
        if "data" in fields:
            found.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
    return found


async def take(frames: AsyncIterator[bytes], until: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Collect events up to and including one of this type."""
    heard: list[bytes] = []
    async for frame in frames:
        heard.append(frame)
        if any(kind == until for _, kind, _ in parsed([frame])):
            break
    await frames.aclose()  # type: ignore[attr-defined]
    return parsed(heard)


async def whole(frames: AsyncIterator[bytes]) -> list[tuple[str, str, dict[str, Any]]]:
    return parsed([frame async for frame in frames])


def stages_of_a_job(stage: Stage) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    """Return a finished job with several leases, and its events."""
    bench = stage.bench
    job = bench.submit(10)
    for _ in range(5):
        bench.hold("w")
        bench.commit(bench.grant(job, 2).token)
        bench.advance(300)
    bench.finish(job)
    bench.last_event = "0-0"
    return job, [row for row in bench.look().stream("ct:events") if row[1].get("job") == job]


def test_a_reconnection_at_any_place_misses_nothing_and_repeats_nothing(stage: Stage) -> None:
    job, story = stages_of_a_job(stage)
    assert [fields["type"] for _, fields in story][-2:] == ["finishing", "done"]

    async def scene() -> None:
        for number, (place, _) in enumerate(story):
            later = [fields["type"] for _, fields in story[number + 1 :]]
            of_job = await whole(stage.job(job, place)) if later else []
            assert [kind for _, kind, _ in of_job] == later
            assert [where for where, _, _ in of_job] == [where for where, _ in story[number + 1 :]]
            if later:
                of_fleet = await take(stage.fleet(place), "done")
                assert [kind for _, kind, _ in of_fleet] == later
        assert history.job_events(stage.hub.events, job, story[-1][0]) == [], "which is answered with 204"

    play(stage, scene)


def test_a_small_job_that_was_told_done_is_not_told_again(stage: Stage) -> None:
    job = stage.bench.submit(1, small=True)
    middle = stage.hub.events.newest()
    stage.bench.work()

    async def scene() -> None:
        heard = await whole(stage.job(job, middle))
        assert [kind for _, kind, _ in heard] == ["running", "done"]
        assert history.job_events(stage.hub.events, job, heard[-1][0]) == []
        first = await whole(stage.job(job))
        assert first[0][2]["present"] == "true", "its id is a place, not the time at which it was done"
        assert not any("present" in data for _, _, data in heard)
        assert [kind for _, kind, _ in first] == ["done"] and history.job_events(
            stage.hub.events, job, first[0][0]
        ) == []

    play(stage, scene)


def test_ids_never_fall_and_progress_is_not_late(stage: Stage) -> None:
    bench = stage.bench
    slow, quick = bench.submit(100), bench.submit(1)
    assert bench.hold("a") == slow and bench.hold("b") == quick

    async def scene() -> list[tuple[str, str, dict[str, Any]]]:
        frames = stage.fleet()
        heard = asyncio.create_task(take(frames, "done"))
        await until(stage.hub.topics)
        bench.commit(bench.grant(slow, 5, worker="a").token)
        bench.commit(bench.grant(quick, worker="b").token)
        bench.finish(quick)
        return await heard

    found = play(stage, scene)
    ids = [position(place) for place, _, _ in found]
    assert ids == sorted(ids) and found[-1][1] == "done"
    assert ("progress", 5) in [(kind, data["done"]) for _, kind, data in found], "before the end of the other job"


def test_a_replica_that_lags_repeats_nothing_older_than_what_was_heard(stage: Stage) -> None:
    _, story = stages_of_a_job(stage)
    heard = story[4][0]
    stage.hub.last = story[0][0]

    async def scene() -> list[tuple[str, str, dict[str, Any]]]:
        stage.hub.tasks = [asyncio.create_task(stage.hub.deliver())]
        frames = stage.fleet(heard)
        listening = asyncio.create_task(take(frames, "done"))
        await asyncio.sleep(0.1)
        lagging = [Event(id=place, fields=fields) for place, fields in story]
        for one in lagging:
            stage.hub.take(one.id, [one])
            await asyncio.sleep(0.01)
        found = await listening
        stage.hub.tasks[0].cancel()
        return found

    found = asyncio.run(scene())
    assert [place for place, _, _ in found] == [place for place, _ in story[5:]]


def test_a_place_after_all_that_happened_is_told_to_look_again(stage: Stage) -> None:
    job, _ = stages_of_a_job(stage)

    async def scene() -> None:
        far = "18446744073709551615-18446744073709551615"
        assert [kind for _, kind, _ in await take(stage.fleet(far), "resync")] == ["resync"]
        assert [kind for _, kind, _ in await whole(stage.job(job, far))] == ["done"]

    play(stage, scene)


def test_listeners_look_again_when_a_replica_without_the_last_events_goes_on(stage: Stage) -> None:
    """Added events can follow the lost ones by number; only the missing last event reveals the difference."""

    async def scene() -> None:
        listening = asyncio.create_task(take(stage.fleet(), "resync"))
        await until(stage.hub.topics)
        [lost, next_] = [stage.bench.client.xadd("ct:events", {"type": "worker"}, id=f"9{at:013}-0") for at in (1, 3)]
        await until(lambda: stage.hub.last == next_.decode())
        stage.bench.client.xdel("ct:events", next_)
        stage.bench.client.xadd("ct:events", {"type": "worker"}, id=f"9{4:013}-0")
        assert (await listening)[-1][1] == "resync"
        stage.bench.client.xdel("ct:events", lost)
        assert history.fleet_events(stage.hub.events, lost.decode()) is None

    play(stage, scene)


@pytest.mark.parametrize(
    "fields",
    [
        {"job": b"\xff\xfe", "type": "progress"},
        {b"\xff": "x"},
        {"job": "j0", "type": "progress", "done": "many"},
        {"type": "a\nb"},
    ],
)
def test_a_broken_event_is_skipped_and_the_next_is_heard(stage: Stage, fields: dict[Any, Any]) -> None:
    before = SKIPS.counts["event"]

    async def scene() -> list[tuple[str, str, dict[str, Any]]]:
        listening = asyncio.create_task(take(stage.fleet(), "done"))
        await until(stage.hub.topics)
        stage.bench.client.xadd("ct:events", fields)
        stage.done(stage.bench.submit(1))
        return await listening

    assert play(stage, scene)[-1][1] == "done"
    assert SKIPS.counts["event"] > before


def test_a_stream_that_is_none_is_put_aside_and_events_go_on(stage: Stage) -> None:
    async def scene() -> None:
        listening = asyncio.create_task(whole(stage.fleet()))
        await until(stage.hub.topics)
        stage.bench.client.xadd("ct:events", {"type": "worker"}, id="18446744073709551614-0")
        await until(lambda: stage.hub.last == "18446744073709551614-0")
        stage.bench.client.set("ct:events", "x")
        job = stage.bench.submit(1)
        waiting = asyncio.create_task(stage.hub.ends.wait([job], lambda: ["queued"], 10))
        assert (await listening)[-1][1] == "resync"
        await asyncio.to_thread(stage.done, job)
        await waiting

    play(stage, scene)


def test_who_waits_for_ends_hears_of_them_at_once_and_of_no_others(stage: Stage) -> None:
    jobs = [stage.bench.submit(1), stage.bench.submit(1)]

    async def scene() -> None:
        waiting = asyncio.create_task(stage.hub.ends.wait(jobs, lambda: ["queued", "queued"], 30))
        await until(lambda: stage.hub.ends.listeners)
        await asyncio.to_thread(stage.bench.work, want=1)
        await waiting
        await stage.hub.ends.wait(jobs, lambda: ["done", None], 10)
        began = asyncio.get_running_loop().time()
        await stage.hub.ends.wait(["other"], lambda: ["queued"], 0.2)
        assert asyncio.get_running_loop().time() - began >= 0.2
        assert not stage.hub.ends.listeners

    play(stage, scene)


def test_a_deleted_jobs_stream_ends(stage: Stage) -> None:
    job = stage.bench.submit(1)
    stage.bench.store.jobs.cancel(job)
    stage.bench.store.jobs.delete(job)
    with pytest.raises(errors.NotFound):
        stage.cluster.queries.jobs.job(job)
    assert play(stage, lambda: whole(stage.job(job))) == []
    assert isinstance(stage.bench.client, redis.Redis)


def test_a_stream_whose_redis_goes_away_ends_in_order_for_its_listener_to_come_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_: object) -> None:
        raise redis.exceptions.ConnectionError("refused")

    async def scene() -> list[list[bytes | str]]:
        monkeypatch.setattr(history, "fleet_events", gone)
        monkeypatch.setattr(history, "job_events", gone)
        job = stage.bench.submit(10)
        fleet: Any = await event_routes.follow_cluster(stage.cluster, ANYONE, "jobs", "1-0")
        own: Any = await event_routes.follow_job(job, stage.cluster, ANYONE, "1-0")
        return [[chunk async for chunk in stream.body_iterator] for stream in (fleet, own)]

    assert play(stage, scene) == [[b"retry: 2000\n\n"]] * 2
    assert caplog.text.count("event stream stopped: refused") == 2


def test_streams_end_when_redis_is_silent_for_long_and_live_again_after_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With pings alone, a page would claim to be live while the current state is unknown."""
    monkeypatch.setattr(hub, "OUTAGE_SECONDS", 2.0)
    monkeypatch.setattr(reader, "BLOCK_MS", 200)  # a healthy read answers long before it counts as silent
    look, heals = Reader.look, threading.Event()
    silent, looked = threading.Event(), list[float]()

    def silent_look(self: Reader, at: str) -> str:
        if silent.is_set():
            heals.wait(60)
        found = look(self, at)
        looked.append(time.monotonic())
        return found

    monkeypatch.setattr(Reader, "look", silent_look)

    async def healthy() -> asyncio.Task[Any]:
        """Return a listener that received nothing for longer than an outage, while Redis was read all the time."""
        while True:
            again, begun = asyncio.create_task(take(stage.fleet(), until="done")), len(looked)
            await asyncio.sleep(3.5)
            moments = [*looked[begun - 1 :], time.monotonic()]
            if max(later - one for one, later in pairwise(moments)) < 1.5:  # else the machine kept the reader from it
                assert not again.done(), "a healthy stream goes on, though nothing happens"
                return again
            again.cancel()
            await asyncio.wait([again])

    async def scene() -> Any:
        job = stage.bench.submit(10)
        fleet: Any = await event_routes.follow_cluster(stage.cluster, ANYONE, "jobs")
        own: Any = await event_routes.follow_job(job, stage.cluster, ANYONE)
        silent.set()
        ended = await asyncio.gather(*(_whole_body(stream) for stream in (fleet, own)))
        silent.clear()
        before = len(looked)
        heals.set()
        await until(lambda: len(looked) > before + 1)
        again = await healthy()
        await asyncio.to_thread(stage.done, job)
        await again
        return ended

    fleet, own = play(stage, scene)
    assert fleet[0] == b"retry: 2000\n\n" and parsed(own)[-1][1] == "queued"
    assert caplog.text.count("event stream stopped: redis has not responded for 2 s") == 2


async def _whole_body(stream: Any) -> list[bytes]:
    return [chunk async for chunk in stream.body_iterator]


def test_who_has_just_seen_a_job_hears_of_its_end_without_a_read(stage: Stage) -> None:
    def unasked() -> list[str | None]:
        raise AssertionError("nobody need look")

    async def scene() -> None:
        before, later = stage.bench.submit(1), stage.bench.submit(1)
        await asyncio.to_thread(stage.done, before)
        await stage.hub.ends.wait([before], lambda: ["queued"], 10)
        waiting = asyncio.create_task(stage.hub.ends.wait([later], unasked, 10, just_seen=True))
        await stage.hub.ends.wait([before], unasked, 10, just_seen=True)
        await asyncio.to_thread(stage.done, later)
        await waiting

    play(stage, scene)


def test_an_end_whose_event_was_lost_is_looked_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "DOUBT_SECONDS", 0.05)
    monkeypatch.setattr(completion, "AGAIN_SECONDS", 0.05)
    states = iter(["queued", "running", "done"])

    async def scene() -> None:
        await asyncio.wait_for(stage.hub.ends.wait(["lost"], lambda: ["done"], 60, just_seen=True), 30)
        await asyncio.wait_for(stage.hub.ends.wait(["lost"], lambda: [next(states)], 60), 30)

    play(stage, scene)


def test_ends_are_remembered_until_a_retry_and_not_without_bound() -> None:
    remembered = completion.Ends()
    remembered.take([event(1, "failed", "j", "failed")])
    assert list(remembered.recent_jobs) == ["j"]
    remembered.take([event(2, "retried", "j", "queued")])
    assert not remembered.recent_jobs
    for number in range(3):
        remembered.take(event(number, "done", f"{number}-{at}", "done") for at in range(1000))
    assert len(remembered.recent_jobs) == 2000
