"""Tests the gateway with fake engines that are paced, broken, slow or malicious, or that send huge frames."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Response
from starlette.responses import StreamingResponse

from coordinator import async_cache
from coordinator.services.gateway import error_forms, gateway, probes, routing
from coordinator.services.gateway.frames import MOST_BYTES, Frames
from coordinator.services.gateway.gate import Gate
from coordinator.services.gateway.gateway import Gateway
from coordinator.services.gateway.openai import BadUpstream, NoReplica, TooLate, UnknownModel
from coordinator.services.gateway.routing import Routes
from coordinator.services.usage_statistics import Exchange
from engines import calls
from jobs import errors
from jobs.store.server import connection
from jobs.store.services import Replica, Report, Service, TunnelEnd
from tests import garbage
from tests.unit.engine_fake import USAGE, Asked, Engine, chunk, tokens, until
from tests.unit.service_requests import stored_request

STREAM = {"model": "chat", "stream": True}


class Stored:
    """Services and replicas as stored in Redis."""

    def __init__(self, *engines: Engine, **asked: Any) -> None:
        self.asked = stored_request(**asked)
        self.counted: list[Mapping[str, int]] = []
        self.requests: list[Mapping[str, int]] = []
        self.failures = 0
        #: Tenants whose services were read, in order.
        self.read: list[str] = []
        self.list = [
            Replica(
                number=number,
                job_id=f"v-a-{number}",
                generation=1,
                since=1,
                job_state="running",
                report=Report(
                    state="ready",
                    why="",
                    since=1,
                    address="127.0.0.1",
                    port=each.port,
                    key=f"key-{number}",
                    worker=f"runner-{number}",
                    host="here",
                ),
            )
            for number, each in enumerate(engines, 1)
        ]

    @property
    def services(self) -> Stored:
        return self

    def of_tenant(self, tenant: str) -> list[Service]:
        self.read.append(tenant)
        one = Service(
            service_id="a",
            tenant="default",
            name="chat",
            engine="http",
            failures=self.failures,
            asked=json.dumps(self.asked),
        )
        return [one] if tenant == "default" else []

    def tunnels(self, _workers: object) -> dict[str, TunnelEnd]:
        return {}

    def replicas(self, ids: Sequence[str]) -> dict[str, list[Replica]]:
        return dict.fromkeys(ids, self.list)

    def ask(self, _me: str, requests: Mapping[str, int], _new: object) -> None:
        self.requests.append(dict(requests))

    def count_busy(self, _me: str, counts: Mapping[str, int]) -> None:
        self.counted.append(dict(counts))


class Client:
    """A client of the gateway; `leave` closes its connection."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.ended: list[Exchange] = []
        self.gateway = Gateway(Routes(stored, "here"), self.ended.append)  # type: ignore[arg-type]

    async def ask(
        self,
        body: dict[str, Any],
        path: str = calls.CHAT,
        left: asyncio.Event | None = None,
        room: AsyncExitStack | None = None,
    ) -> Response:
        async def receive() -> dict[str, Any]:
            await (left or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        request: Any = SimpleNamespace(receive=receive)
        question = gateway.question("default", path, body)
        return await self.gateway.answer(request, question, room or AsyncExitStack())

    async def text(self, body: dict[str, Any]) -> bytes:
        return b"".join([piece async for piece in pieces(await self.ask(body))])


async def pieces(answer: Response) -> Any:
    if not isinstance(answer, StreamingResponse):
        yield bytes(answer.body)
        return
    async with aclosing(answer.body_iterator) as several:  # type: ignore[type-var]
        async for piece in several:
            yield piece


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))


def with_engines(
    count: int, work: Callable[[Client, list[Engine]], Awaitable[None]], *behaviours: Any, **asked: Any
) -> None:
    """Run `work` with a client of a service with this number of replicas."""

    async def go() -> None:
        engines = [await Engine(*behaviours[at : at + 1]).__aenter__() for at in range(count)]
        client = Client(Stored(*engines, **asked))
        try:
            await work(client, engines)
        finally:
            await client.gateway.close()
            for engine in engines:
                await engine.__aexit__()

    run(go)


def test_an_answer_comes_as_the_engine_gave_it_and_the_key_is_the_replicas() -> None:
    async def work(client: Client, engines: list[Engine]) -> None:
        answer = await client.ask({"model": "chat", "prompt": "é"}, calls.COMPLETIONS)
        assert json.loads(bytes(answer.body))["choices"] == [{"text": "abc"}] and answer.status_code == 200
        [asked] = engines[0].asked
        assert asked.head.startswith("POST /v1/completions HTTP/1.1") and "Bearer key-1" in asked.head
        assert asked.body == {"model": "chat", "prompt": "é"}
        [exchange] = client.ended
        assert (exchange.status, exchange.prompt_tokens, exchange.answer_tokens) == (200, 7, 3)

    with_engines(1, work)


@pytest.mark.parametrize("wants_counts", [False, True])
def test_a_stream_passes_as_it_is_and_counts_that_nobody_asked_for_are_taken_out(*, wants_counts: bool) -> None:
    async def work(client: Client, _engines: list[Engine]) -> None:
        options = {"stream_options": {"include_usage": True}} if wants_counts else {}
        text = await client.text({**STREAM, **options})
        frames = [chunk("a"), chunk("b"), chunk("c"), *([USAGE] if wants_counts else [])]
        assert text == b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in frames) + b"data: [DONE]\n\n"
        assert client.ended[0].answer_tokens == 3, "they are counted all the same"

    with_engines(1, work)


def test_each_frame_passes_before_the_next_one_is_there() -> None:
    passed = asyncio.Event()

    async def paced(asked: Asked) -> None:
        await asked.begin_stream()
        for letter in "abcdef":
            passed.clear()
            await asked.frame(chunk(letter))
            await passed.wait()
        await asked.send(b"data: [DONE]\n\n")

    async def work(client: Client, _engines: list[Engine]) -> None:
        seen = 0
        async for piece in pieces(await client.ask(STREAM)):
            assert piece.count(b"data:") == 1
            seen += 1
            passed.set()
        assert seen == 7

    with_engines(1, work, paced)


def test_requests_go_to_the_replica_with_the_fewest() -> None:
    free = asyncio.Event()

    async def slow(asked: Asked) -> None:
        await free.wait()
        await tokens(asked)

    async def work(client: Client, engines: list[Engine]) -> None:
        asking = [asyncio.create_task(client.ask({"model": "chat"})) for _ in range(9)]
        await until(lambda: not (sum(len(engine.asked) for engine in engines) < 9))
        assert [len(engine.asked) for engine in engines] == [3, 3, 3]
        free.set()
        assert [answer.status_code for answer in await asyncio.gather(*asking)] == [200] * 9

    with_engines(3, work, slow, slow, slow)


async def refuse(asked: Asked) -> None:
    await asked.answer(503, {"error": "loading"})


async def hang_up(asked: Asked) -> None:
    asked.writer.transport.abort()


async def hang_up_in_the_head(asked: Asked) -> None:
    await asked.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    asked.writer.transport.abort()


async def hang_up_before_the_first_frame(asked: Asked) -> None:
    await asked.begin_stream()
    await asked.send(b"data: {")
    asked.writer.transport.abort()


async def talk_nonsense(asked: Asked) -> None:
    await asked.send(b"\x00\x01 SSH-2.0\r\n\r\n")
    asked.writer.close()


@pytest.mark.parametrize(
    ("broken", "streams"),
    [
        *((broken, streams) for broken in (refuse, hang_up, hang_up_in_the_head, talk_nonsense) for streams in (0, 1)),
        (hang_up_before_the_first_frame, 1),
    ],
)
def test_another_replica_answers_once_where_no_byte_has_come(
    monkeypatch: pytest.MonkeyPatch, broken: Any, streams: int
) -> None:
    monkeypatch.setattr(routing, "EJECTED_SECONDS", 1000.0)

    async def work(client: Client, engines: list[Engine]) -> None:
        client.stored.list[1] = replace(client.stored.list[1], busy=1)  # the broken one gets the first request
        answer = await client.text({"model": "chat", "stream": bool(streams)})
        assert b"abc" in answer or b'"a"' in answer
        assert [len(engine.asked) for engine in engines] == [1, 1]
        again = await client.text({"model": "chat"})
        assert b"abc" in again and len(engines[0].asked) == 1, "it is asked no more for a while"

    with_engines(2, work, broken)


@pytest.mark.parametrize("broken", [refuse, hang_up])
def test_where_two_replicas_give_no_answer_no_third_is_asked(broken: Any) -> None:
    async def work(client: Client, engines: list[Engine]) -> None:
        with pytest.raises(BadUpstream, match="no replica of chat responded; tried 2 of 3"):
            await client.ask({"model": "chat"})
        assert sum(len(engine.asked) for engine in engines) == 2
        assert not any(client.gateway.routes.busy.values()) and client.ended[0].status == 502

    with_engines(3, work, broken, broken, broken)


def test_a_replica_where_nothing_listens_is_left_out_at_once() -> None:
    async def work(client: Client, engines: list[Engine]) -> None:
        await engines[0].__aexit__()
        client.stored.list[1] = replace(client.stored.list[1], busy=1)
        for _ in range(3):
            assert b"abc" in await client.text({"model": "chat"})

    with_engines(2, work)


def test_a_replica_whose_runner_died_is_asked_where_it_is_now() -> None:
    """A coordinator knows half a second late which replicas are ready, which must not cause a 502."""

    async def work(client: Client, engines: list[Engine]) -> None:
        client.stored.list, [*_, now] = client.stored.list[:1], client.stored.list
        await client.gateway.routes.find("default", "chat")
        await engines[0].__aexit__()
        client.stored.list = [replace(now, job_id=client.stored.list[0].job_id)]
        assert b"abc" in await client.text({"model": "chat"}) and len(engines[1].asked) == 1

    with_engines(2, work)


def test_a_service_that_ended_meanwhile_says_so() -> None:
    async def work(client: Client, engines: list[Engine]) -> None:
        await client.gateway.routes.find("default", "chat")
        await engines[0].__aexit__()
        with pytest.raises(BadUpstream, match="tried 1 of 1"):
            await client.ask({"model": "chat"})
        client.stored.list = []
        with pytest.raises(NoReplica, match="no replica of chat is ready"):
            await client.ask({"model": "chat"})

    with_engines(1, work)


def test_a_stream_that_breaks_off_is_not_begun_anew_and_ends_with_an_error() -> None:
    async def breaks(asked: Asked) -> None:
        await asked.begin_stream()
        await asked.frame(chunk("a"))
        await asyncio.sleep(0.05)
        asked.writer.transport.abort()

    async def work(client: Client, engines: list[Engine]) -> None:
        client.stored.list[1] = replace(client.stored.list[1], busy=1)
        frames = (await client.text(STREAM)).strip().split(b"\n\n")
        assert b'"a"' in frames[0] and b"[DONE]" not in frames[-1]
        assert "broke the connection" in json.loads(frames[-1][5:])["error"]["message"]
        assert [len(engine.asked) for engine in engines] == [1, 0]
        assert client.ended[0].status == 502

    with_engines(2, work, breaks)


@pytest.mark.parametrize("streams", [False, True])
def test_when_the_client_leaves_the_engine_is_told(*, streams: bool) -> None:
    told = asyncio.Event()

    async def endless(asked: Asked) -> None:
        if streams:
            await asked.begin_stream()
            await asked.frame(chunk("a"))
        await asked.gone()
        told.set()

    async def work(client: Client, engines: list[Engine]) -> None:
        left = asyncio.Event()
        asking = asyncio.create_task(client.ask({"model": "chat", "stream": streams}, left=left))
        if streams:
            stream = pieces(await asking)
            await anext(stream)
            await stream.aclose()
        else:
            await until(lambda: engines[0].asked)
            left.set()
            assert (await asking).status_code == 499
        await asyncio.wait_for(told.wait(), 20)
        assert not any(client.gateway.routes.busy.values()) and client.ended[0].status == 499

    with_engines(1, work, endless)


async def never(asked: Asked) -> None:
    await asked.gone()


async def drip(asked: Asked) -> None:
    await asked.begin_stream()
    while not asked.reader.at_eof():
        await asked.frame(chunk("a"))
        await asyncio.sleep(0.05)


def test_an_answer_that_does_not_come_in_time_is_given_up() -> None:
    async def work(client: Client, engines: list[Engine]) -> None:
        with pytest.raises(TooLate, match=r"request_timeout_seconds .0\.5"):
            await client.ask({"model": "chat"})
        with pytest.raises(TooLate):
            await client.ask(STREAM)
        engines[0].behaviour = drip
        with suppress(TooLate):  # on a machine so busy that even the first frame is late
            assert b"took longer than" in (await client.text(STREAM)).split(b"\n\n")[-2], "frames come all the time"

    with_engines(1, work, never, request_timeout_seconds=0.5)


def test_beyond_what_passes_at_once_as_many_wait_and_others_come_later() -> None:
    free = asyncio.Event()

    async def slow(asked: Asked) -> None:
        await free.wait()
        await tokens(asked)

    async def work(client: Client, engines: list[Engine]) -> None:
        asking = [asyncio.create_task(client.ask({"model": "chat"})) for _ in range(4)]
        await until(lambda: not (len(engines[0].asked) < 2))
        with pytest.raises(errors.OverLimit) as over:
            await client.ask({"model": "chat"})
        assert error_forms.build_error_response(over.value, "/v1/completions").headers["Retry-After"] == "1"
        assert len(engines[0].asked) == 2
        free.set()
        assert [answer.status_code for answer in await asyncio.gather(*asking)] == [200] * 4
        route = await client.gateway.routes.find("default", "chat")
        assert (route.gate.active, route.gate.waiting) == (0, 0)

    with_engines(1, work, slow, max_concurrent_requests=2)


def test_what_a_tenant_asks_reads_its_own_services_alone() -> None:
    async def work(client: Client, _engines: list[Engine]) -> None:
        for _ in range(3):
            assert b"abc" in await client.text({"model": "chat"})
        assert set(client.stored.read) == {"default"}
        with pytest.raises(UnknownModel, match="tenant other has no model with this name; it has no models"):
            await client.gateway.routes.find("other", "chat")
        assert client.stored.read.count("other") == 1

    with_engines(1, work)


def test_a_request_counts_to_its_service_also_while_nothing_of_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    free = asyncio.Event()

    async def slow(asked: Asked) -> None:
        await free.wait()
        await tokens(asked)

    async def work(client: Client, engines: list[Engine]) -> None:
        asking = asyncio.create_task(client.ask({"model": "chat"}))
        await until(lambda: bool(engines[0].asked))
        monkeypatch.setattr(async_cache, "KEEP_SECONDS", 0.0)
        await client.gateway.routes.of_tenant("other")
        garbage.collect()
        second = asyncio.create_task(client.ask({"model": "chat"}))
        route = await client.gateway.routes.find("default", "chat")
        await until(lambda: route.gate.waiting == 1)
        assert route.gate.active == 1 and len(engines[0].asked) == 1
        free.set()
        assert [(await one).status_code for one in (asking, second)] == [200, 200]

    with_engines(1, work, slow, max_concurrent_requests=1)


def test_who_leaves_while_waiting_leaves_the_turn_to_others() -> None:
    async def work() -> None:
        gate = Gate()
        async with gate.turn(1, 10):
            waiting = asyncio.create_task(_once(gate))
            after = asyncio.create_task(_once(gate))
            await until(lambda: not (gate.waiting < 1))
            waiting.cancel()
            await asyncio.sleep(0)
        with pytest.raises(errors.OverLimit):
            await after
        await _once(gate)
        assert (gate.active, gate.waiting) == (0, 0)
        async with gate.turn(1, 10):
            with pytest.raises(errors.OverLimit, match=r"waited 0\.01 s"):
                await _once(gate, 0.01)
        assert (gate.active, gate.waiting) == (0, 0)

    run(work)


def test_who_leaves_while_a_turn_ends_is_passed_over_without_a_fault() -> None:
    async def work() -> None:
        gate = Gate()
        async with gate.turn(1, 10):
            waiting = asyncio.create_task(_once(gate))
            await until(lambda: gate.waiting == 1)
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (gate.active, gate.waiting) == (0, 0)

    run(work)


async def _once(gate: Gate, seconds: float = 10) -> None:
    async with gate.turn(1, seconds):
        pass


def test_without_a_ready_replica_the_refusal_says_why() -> None:
    async def work(client: Client, _engines: list[Engine]) -> None:
        with pytest.raises(NoReplica) as refused:
            await client.ask({"model": "chat"})
        answer = error_forms.build_error_response(refused.value, "/v1/completions")
        body = json.loads(bytes(answer.body))
        assert answer.status_code == 503 and answer.headers["Retry-After"] == "5"
        assert body["error"]["code"] == "no_ready_replica" and body["waiting_because"] == "no replica has started yet"
        with pytest.raises(UnknownModel, match="it has chat"):
            await client.ask({"model": "other"})
        for body in ({}, {"model": 3}, {"model": ""}):
            with pytest.raises(errors.InvalidRequest, match="model: must be a string"):
                await client.ask(body)

    with_engines(0, work)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"host": "elsewhere"}, "listens only on its own host"),
        ({"address": "169.254.169.254"}, "reported the unusable address"),
        ({"address": "0.0.0.0"}, "has no tunnel to this coordinator yet"),
        ({"address": "db.internal"}, "reported an invalid address"),
        ({"state": "unhealthy"}, "1 unhealthy"),
        ({"state": "stopping"}, "1 stopping"),
    ],
)
def test_a_replica_that_this_coordinator_cannot_reach_is_not_asked(
    change: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.services.gateway.routing.TUNNEL_SECONDS", 0.3)

    async def work(client: Client, engines: list[Engine]) -> None:
        [one] = client.stored.list
        assert one.report
        client.stored.list = [replace(one, report=replace(one.report, **change))]  # type: ignore[arg-type]
        with pytest.raises(NoReplica, match=why):
            await client.ask({"model": "chat"})
        assert not engines[0].asked

    with_engines(1, work)


def test_why_a_ready_replica_is_not_reached_is_told_to_its_tenant_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(probes, "WAIT_SECONDS", 30.0)

    async def work(client: Client, engines: list[Engine]) -> None:
        routes, [first, second, third] = client.gateway.routes, client.stored.list
        assert await routes.explain_unreached("default") == {}
        assert second.report and third.report
        far = replace(second, report=replace(second.report, address="0.0.0.0"))
        gone = replace(third, report=replace(third.report, port=1))
        client.stored.list = [first, far, gone]
        monkeypatch.setattr(routing, "FRESH_SECONDS", 0.0)
        found = await routes.explain_unreached("default")
        assert found.keys() == {far.job_id, gone.job_id}
        assert "runner-2 has no tunnel to this coordinator yet" in found[far.job_id]
        assert found[gone.job_id].startswith("cannot connect to 127.0.0.1, port 1: ")
        assert await routes.explain_unreached("other") == {}
        client.stored.list = [first, second, third]
        assert await routes.explain_unreached("default") == {}, "it is looked for again"
        assert not any(engine.asked for engine in engines), "a look is no request"

    with_engines(3, work)


def test_a_list_waits_no_longer_for_an_address_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[object]()

    async def hang(*place: object) -> None:
        tried.append(place)
        await asyncio.Event().wait()

    monkeypatch.setattr(probes, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(asyncio, "open_connection", hang)

    async def work() -> None:
        looks = probes.Probes()
        places = [("192.0.2.1", port) for port in range(100)]
        assert await looks.failures(places) == {}
        assert await looks.failures(places[:1]) == {}
        assert len(tried) == probes.AT_ONCE, "no more at once, and none twice"
        monkeypatch.setattr(probes, "CONNECT_SECONDS", 0.0)
        monkeypatch.setattr(probes, "WAIT_SECONDS", 30.0)
        assert await looks.failures([("192.0.2.1", 99)]) == {}, "there is no room for it"
        await looks.close()
        assert await looks.failures([("192.0.2.2", 1)]) == {("192.0.2.2", 1): "no response within 0 s"}
        await looks.close()

    run(work)


def test_requests_that_go_on_are_reported_so_that_their_replica_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "REPORT_SECONDS", 0.01)

    async def work(client: Client, _engines: list[Engine]) -> None:
        stream = pieces(await client.ask(STREAM))
        await until(lambda: not ({"v-a-1": 1} not in client.stored.counted))
        await stream.aclose()
        await until(lambda: client.stored.counted[-1] == {"v-a-1": 0})

    with_engines(1, work, drip)


@pytest.mark.parametrize("answered", [302, 401])
def test_neither_a_redirect_nor_a_refused_key_is_passed_on(answered: int) -> None:
    async def strange(asked: Asked) -> None:
        await asked.answer(answered, {"error": "no"})

    async def work(client: Client, _engines: list[Engine]) -> None:
        with pytest.raises(BadUpstream, match=f"returned HTTP {answered}"):
            await client.ask({"model": "chat"})
        assert [one.status for one in client.ended] == [502], "counted once"

    with_engines(1, work, strange)


@pytest.mark.parametrize("status", [400, 404, 429, 500])
def test_errors_of_the_engine_are_the_clients(status: int) -> None:
    async def wrong(asked: Asked) -> None:
        await asked.answer(status, {"error": {"message": "too long"}})

    async def work(client: Client, _engines: list[Engine]) -> None:
        answer = await client.ask(STREAM)
        assert answer.status_code == status and json.loads(bytes(answer.body))["error"]["message"] == "too long"

    with_engines(1, work, wrong)


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ("application/json; charset=utf-8", "application/json; charset=utf-8"),
        ("text/plain", "text/plain; charset=utf-8"),
        ("text/html", "application/octet-stream"),
        ("image/svg+xml", "application/octet-stream"),
    ],
)
def test_no_answer_of_an_engine_is_a_page_of_this_origin(given: str, passed: str) -> None:
    async def page(asked: Asked) -> None:
        await asked.send(f"HTTP/1.1 200 OK\r\nContent-Type: {given}\r\nContent-Length: 2\r\n\r\n{{}}".encode())

    async def work(client: Client, _engines: list[Engine]) -> None:
        answer = await client.ask({"model": "chat"})
        assert (answer.headers["content-type"], bytes(answer.body)) == (passed, b"{}")

    with_engines(1, work, page)


def test_an_answer_that_is_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "MAX_ANSWER", 1000)

    async def long(asked: Asked) -> None:
        await asked.answer(200, {"choices": "x" * 1000})

    async def work(client: Client, _engines: list[Engine]) -> None:
        with pytest.raises(BadUpstream, match="larger than 1000 bytes"):
            await client.ask({"model": "chat"})

    with_engines(1, work, long)


# -- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_are_cut_alike_however_they_come(size: int) -> None:
    text = (
        b"data: 1\n\ndata: 2\r\n\r\n: ping\n\n" + b"data: " + json.dumps(USAGE).encode() + b"\n\ndata: [DONE]\n\nrest"
    )
    frames = Frames(hide_usage=True)
    got = [frame for at in range(0, len(text), size) for frame in frames.feed(text[at : at + size])]
    assert got == [b"data: 1\n\n", b"data: 2\r\n\r\n", b": ping\n\n", b"data: [DONE]\n\n"]
    assert frames.take_rest() == b"rest" and frames.usage == USAGE["usage"]


def test_a_huge_frame_passes_in_pieces_and_in_linear_time() -> None:
    frames, sent, got = Frames(hide_usage=True), 0, 0
    for _ in range(64 * 16):
        sent += 1 << 16
        got += sum(map(len, frames.feed(b"x" * (1 << 16))))
        assert sent - got <= MOST_BYTES
    assert list(frames.feed(b'"usage"\n\ndata: 1\n\n'))[-1] == b"data: 1\n\n"


@pytest.mark.parametrize(
    "odd", [b'data: {"usage"', b'data: "usage"', b'data: [{"usage": 1}]', b'data: {"usage": 3, "choices": []}']
)
def test_frames_that_only_look_like_counts_pass(odd: bytes) -> None:
    assert list(Frames(hide_usage=True).feed(odd + b"\n\n")) == [odd + b"\n\n"]


def asleep(client: Client) -> list[Replica]:
    """Put a service to sleep. Return its replicas, which are back when the test restores them."""
    there, client.stored.list = client.stored.list, []
    return there


def test_a_stream_to_a_service_that_sleeps_has_comments_until_it_is_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "COMMENT_SECONDS", 0.05)

    async def work(client: Client, _engines: list[Engine]) -> None:
        there = asleep(client)
        answer = pieces(await client.ask(STREAM))
        assert [await anext(answer) for _ in range(3)] == [b": waiting\n\n"] * 3
        await until(lambda: {"a": 1} in client.stored.requests)
        client.stored.list = there
        rest = b"".join([piece async for piece in answer])
        assert rest.replace(b": waiting\n\n", b"").startswith(b"data: ") and rest.endswith(b"data: [DONE]\n\n")
        assert [exchange.status for exchange in client.ended] == [200] and client.ended[0].answer_tokens == 3
        await until(lambda: client.stored.requests[-1] == {"a": 0})

    with_engines(1, work, idle_seconds=60)


def test_a_stream_that_waits_ends_with_an_error_frame_where_redis_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "COMMENT_SECONDS", 0.05)

    def gone(_ids: Sequence[str]) -> dict[str, list[Replica]]:
        raise connection.Silent("Redis does not answer")

    async def work(client: Client, _engines: list[Engine]) -> None:
        asleep(client)
        answer = pieces(await client.ask(STREAM))
        assert await anext(answer) == b": waiting\n\n"
        monkeypatch.setattr(client.stored, "replicas", gone)
        rest = b"".join([piece async for piece in answer]).replace(b": waiting\n\n", b"")
        assert b"redis cannot be reached" in rest and b"try again" in rest and rest.startswith(b"data: ")
        assert [exchange.status for exchange in client.ended] == [503]
        assert not any(client.gateway.routes.asked.values())

    with_engines(1, work, idle_seconds=60)


def test_a_request_to_a_service_that_sleeps_waits_for_its_answer() -> None:
    async def work(client: Client, _engines: list[Engine]) -> None:
        there = asleep(client)
        asked = asyncio.ensure_future(client.ask({"model": "chat", "prompt": "x"}, calls.COMPLETIONS))
        await until(lambda: {"a": 1} in client.stored.requests)
        client.stored.list = there
        assert (await asked).status_code == 200
        assert [exchange.status for exchange in client.ended] == [200]

    with_engines(1, work, idle_seconds=60)


def test_who_leaves_while_a_service_wakes_up_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "COMMENT_SECONDS", 0.05)

    async def work(client: Client, engines: list[Engine]) -> None:
        there = asleep(client)
        answer = pieces(await client.ask(STREAM))
        await anext(answer)
        await answer.aclose()
        assert [exchange.status for exchange in client.ended] == [499]
        client.stored.list = there
        assert (await client.text(STREAM)).endswith(b"data: [DONE]\n\n"), "its turn is free again"
        assert len(engines[0].asked) == 1

    with_engines(1, work, idle_seconds=60, max_concurrent_requests=1)


def test_nobody_waits_for_a_service_whose_replicas_die_or_longer_than_was_asked_for() -> None:
    async def work(client: Client, _engines: list[Engine]) -> None:
        asleep(client)
        text = await client.text(STREAM)
        assert b"no replica of chat is ready" in text and [each.status for each in client.ended] == [503]
        client.stored.failures = 1
        await asyncio.sleep(routing.FRESH_SECONDS)
        with pytest.raises(NoReplica):
            await client.ask(STREAM)

    with_engines(1, work, idle_seconds=60, request_timeout_seconds=1)


def test_an_answer_that_is_no_stream_is_a_frame_of_one_that_has_begun() -> None:
    async def refuses(asked: Asked) -> None:
        await asked.answer(400, {"error": "too long"})

    async def work(client: Client, engines: list[Engine]) -> None:
        there = asleep(client)
        answer = pieces(await client.ask(STREAM))
        assert await anext(answer) == b": waiting\n\n"
        client.stored.list = there
        rest = b"".join([piece async for piece in answer]).replace(b": waiting\n\n", b"")
        error = json.loads(rest.removeprefix(b"data: "))["error"]
        assert (error["message"], error["type"]) == ("too long", "invalid_request_error")
        assert len(engines[0].asked) == 1

    with_engines(1, work, refuses, idle_seconds=60)


def test_a_replica_that_is_younger_than_what_is_known_is_found() -> None:
    async def go() -> None:
        async with Engine() as engine:
            stored = Stored(engine)
            client, there, stored.list = Client(stored), stored.list, []
            try:
                with pytest.raises(NoReplica):
                    await client.ask({"model": "chat"})
                stored.list = there
                assert (await client.ask({"model": "chat"})).status_code == 200
            finally:
                await client.gateway.close()

    run(go)
