"""Tests the asynchronous client with a fake in-memory cluster."""

from __future__ import annotations

import asyncio
import inspect
import threading
import uuid
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import httpx
import pytest

from tests.unit.cluster_fake import Fake, complete, job
from threads_cluster import AsyncCluster, Cluster, errors
from threads_cluster.client import (
    artifacts,
    async_api,
    attachments,
    connection,
    models,
    profiles,
    programs,
    services,
    suspension,
    workflows,
)
from threads_protocol.answers import attachments as attachment_answers
from threads_protocol.answers import fleet, jobs

STATUS = complete(fleet.Status, version="1")
ACCEPTED = {"job_id": "j1", "status": "queued", "estimated_wait_seconds": 0.0, "notes": []}
#: Method whose result, a Dask client, blocks.
ONLY_SYNCHRONOUS = {"dask"}


class Waiting(httpx.AsyncBaseTransport):
    """Transport whose responses wait until `all_sent` requests have been sent."""

    def __init__(self, fake: Fake, all_sent: int) -> None:
        self.fake, self.left, self.sent = fake, all_sent, asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.left -= 1
        if not self.left:
            self.sent.set()
        await self.sent.wait()
        return self.fake(request)


def connect(fake: Fake) -> AsyncCluster:
    return AsyncCluster("http://cluster.test", "", transport=httpx.MockTransport(fake))


def methods(kind: type) -> set[str]:
    return {name for name, member in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("asynchronous", "synchronous"),
    [
        (AsyncCluster, Cluster),
        (async_api.AsyncArtifacts, artifacts.Artifacts),
        (async_api.AsyncPrograms, programs.Programs),
        (async_api.AsyncWorkflows, workflows.Workflows),
        (async_api.AsyncProfiles, profiles.Profiles),
        (async_api.AsyncProfile, profiles.Profile),
        (async_api.AsyncServices, services.Services),
        (async_api.AsyncModels, models.Models),
        (async_api.AsyncData, models.Data),
        (async_api.AsyncAttachment, attachments.Attachment),
    ],
)
def test_both_clients_have_the_same_methods(asynchronous: type, synchronous: type) -> None:
    assert methods(asynchronous) == methods(synchronous) - ONLY_SYNCHRONOUS
    for name in methods(asynchronous) - {"attachment", "close", "profile"}:
        assert inspect.signature(getattr(asynchronous, name)) == inspect.signature(getattr(synchronous, name))


def test_methods_that_yield_items_are_asynchronous_iterators() -> None:
    cluster = connect(Fake())
    for name in ("events", "follow", "jobs"):
        assert isinstance(getattr(cluster, name)(*() if name == "jobs" else ("j1",)), AsyncIterator)


async def _wait_and_read(fake: Fake) -> Any:
    async with connect(fake) as cluster:
        submitted = await cluster.submit("sums", {"n": 2**60})
        assert (await cluster.wait(submitted["job_id"]))["state"] == "done"
        return (await cluster.result("j1"))["result"], [row["job_id"] async for row in cluster.jobs(limit=2)]


def test_a_job_is_submitted_and_awaited() -> None:
    fake = Fake()
    fake.on("POST", "/api/submit", httpx.Response(202, json=ACCEPTED))
    fake.on("GET", "/api/jobs/j1", job("running"), job("done"))
    fake.on("GET", "/api/jobs/j1/result", complete(jobs.Result, result={"sum": 3}))
    fake.on("GET", "/api/jobs", {"jobs": [job("done", job_id="j1"), job("done", job_id="j2")], "cursor": None})
    assert asyncio.run(_wait_and_read(fake)) == ({"sum": 3}, ["j1", "j2"])
    assert fake.bodies("/api/submit")[0]["parameters"] == {"n": str(2**60)}


def test_events_are_read_with_async_for() -> None:
    lines = 'id: 1\ndata: {"state": "running"}\n\nid: 2\ndata: {"state": "done"}\n\ndata: {"state": "unread"}\n\n'
    fake = Fake()
    fake.on(
        "GET", "/api/jobs/j1/events", httpx.Response(200, text=lines, headers={"Content-Type": "text/event-stream"})
    )

    async def read() -> list[Any]:
        async with connect(fake) as cluster:
            return [event["state"] async for event in cluster.events("j1")]

    assert asyncio.run(read()) == ["running", "done"]


def test_a_hundred_calls_wait_at_the_same_time_without_threads() -> None:
    fake = Fake()
    fake.on("GET", "/api/status", STATUS)

    async def call() -> int:
        before = threading.active_count()
        async with AsyncCluster("http://cluster.test", "", transport=Waiting(fake, 100)) as cluster:
            answers = await asyncio.gather(*(cluster.status() for _ in range(100)))
        assert threading.active_count() == before
        return len(answers)

    assert asyncio.run(call()) == 100


def test_errors_are_those_of_the_synchronous_client() -> None:
    fake = Fake()
    fake.on("GET", "/api/status", httpx.ConnectError("[Errno 111] Connection refused"))

    async def call() -> None:
        async with connect(fake) as cluster:
            await cluster.status()

    with pytest.raises(errors.Unreachable, match="connection refused"):
        asyncio.run(call())


def test_a_call_is_retried_while_other_tasks_run() -> None:
    fake, ran = Fake(), []
    fake.on("GET", "/api/status", STATUS, httpx.ReadError("cut"), STATUS)

    async def call() -> None:
        async with connect(fake) as cluster:
            await cluster.status()
            calling = asyncio.create_task(cluster.status())
            while len(fake.asked) < 3:
                ran.append(1)
                await asyncio.sleep(0)
            await calling

    asyncio.run(call())
    assert len(fake.asked) == 3 and len(ran) > 2


def test_a_cancelled_task_ends_its_call_and_runs_its_cleanup() -> None:
    ended = []

    def call() -> None:
        try:
            suspension.sleep(600)
        finally:
            suspension.sleep(0)  # Cleanup can suspend too, for example to close a connection
            ended.append(True)

    async def cancel() -> None:
        task = asyncio.create_task(suspension.run(call))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert ended == [True]


def test_leaving_a_loop_early_closes_the_stream() -> None:
    closed = []

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                yield b'id: 1\ndata: {"state": "running"}\n\n'

        async def aclose(self) -> None:
            closed.append(True)

    class Endless(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=Body())

    async def read() -> None:
        async with AsyncCluster("http://cluster.test", "", transport=Endless()) as cluster:
            events = cluster.events("j1")
            assert (await anext(events))["state"] == "running"
            await events.aclose()  # type: ignore[attr-defined]

    asyncio.run(read())
    assert closed == [True]


def test_context_variables_of_the_task_are_those_of_the_call() -> None:
    from contextvars import ContextVar

    name: ContextVar[str] = ContextVar("name")

    async def call(text: str) -> str:
        name.set(text)

        def read() -> str:
            suspension.sleep(0)
            return name.get()

        return await suspension.run(read)

    async def both() -> list[str]:
        return list(await asyncio.gather(call("a"), call("b")))

    assert list(asyncio.run(both())) == ["a", "b"]


def test_a_connection_outside_its_event_loop_is_refused() -> None:
    transport = suspension.SuspendingTransport(httpx.MockTransport(Fake()))
    with pytest.raises(RuntimeError, match="in other code, use Cluster"):
        transport.handle_request(httpx.Request("GET", "http://cluster.test/"))


def test_a_profile_is_an_asynchronous_context_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(profiles.Profiles, "start", lambda self, name, **how: called.append(f"start {name}"))
    monkeypatch.setattr(profiles.Profiles, "stop", lambda self, name: called.append(f"stop {name}"))

    async def record() -> None:
        async with connect(Fake()) as cluster, cluster.profile("noon", hz=10):
            called.append("block")

    asyncio.run(record())
    assert called == ["start noon", "block", "stop noon"]


def test_a_shell_uses_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=0))
    fake, path = Fake(), f"/api/jobs/j1/attachments/{'0' * 32}"
    entered = complete(attachment_answers.Input, state="running", upto=3)

    async def enter() -> tuple[bool, str]:
        async with connect(fake) as cluster:
            fake.on("POST", f"{path}/input", entered)
            shown = complete(attachment_answers.Output, state="running", chunks=[["o", "aGkK"]], upto=3)
            fake.on("GET", f"{path}/output", shown)
            shell = cluster.attachment("j1")
            written, read = await asyncio.gather(shell.write(b"ls\n"), shell.read(0, 0.0))
            return written, b"".join(data for _, data in read.pieces).decode()

    assert asyncio.run(enter()) == (True, "hi\n")


def test_an_outage_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "NOTICE_SECONDS", 0.0)
    fake, noticed = Fake(), list[str]()
    fake.on("GET", "/api/status", STATUS, httpx.ReadError("cut"), STATUS)

    async def call() -> None:
        async with connect(fake) as cluster:
            cluster.notify(lambda error: noticed.append(type(error).__name__))
            await cluster.status()
            await cluster.status()

    asyncio.run(call())
    assert noticed == ["Unreachable"]


def test_the_best_host_is_chosen_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[bool, Any]] = []

    def choose(self: Cluster, config: Any = None) -> str:
        chosen.append((threading.current_thread() is threading.main_thread(), config))
        return "host-1"

    monkeypatch.setattr(Cluster, "best_host", choose)

    async def call() -> str:
        async with connect(Fake()) as cluster:
            return await cluster.best_host("c.yaml")

    assert asyncio.run(call()) == "host-1" and chosen == [(False, "c.yaml")]


def test_types_of_coroutines() -> None:
    status: Coroutine[Any, Any, dict[str, Any]] = connect(Fake()).status()
    status.close()
