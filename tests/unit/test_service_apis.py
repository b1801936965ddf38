"""Tests OpenAI's responses API and Anthropic's messages API through the gateway with fake engines."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coordinator.services.gateway import affinity, error_forms, event_repairs, gateway, openai, routing
from coordinator.services.gateway.frames import MOST_BYTES, Frames
from coordinator.services.gateway.openai import BadUpstream, LacksCall
from engines import calls, registry
from engines.contract import Model
from jobs import errors
from tests.unit.engine_fake import Asked, Engine
from tests.unit.test_engines import CONFIG, WEIGHTS, model
from tests.unit.test_service_gateway import Client, asleep, pieces, with_engines

Json = dict[str, Any]
RESPONSE: dict[str, Any] = {"id": "resp_1", "object": "response", "status": "completed", "model": "chat", "output": []}
USED = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10, "input_tokens_details": {"cached_tokens": 6}}
BEGIN = {"type": "message", "role": "assistant", "content": [], "model": "chat"}


def event(body: Json) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode()


def events_of(text: bytes) -> list[Json]:
    """Return the events of a stream, after checking that each frame has its event's name."""
    found = []
    for frame in filter(None, text.replace(b": waiting\n\n", b"").split(b"\n\n")):
        name, data = frame.split(b"\n")
        found.append(json.loads(data.removeprefix(b"data: ")))
        assert name == b"event: " + found[-1]["type"].encode()
    return found


#: A complete stream of vLLM, and an incomplete one of llama.cpp.
COMPLETE: list[dict[str, Any]] = [
    {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, "usage": None}},
    {
        "type": "response.output_text.delta",
        "sequence_number": 1,
        "output_index": 0,
        "content_index": 0,
        "item_id": "msg_1",
        "delta": "a",
    },
    {"response": {**RESPONSE, "usage": USED, "user": None}, "sequence_number": 2, "type": "response.completed"},
]
MESSAGE: list[dict[str, Any]] = [
    {
        "type": "message_start",
        "message": {
            **BEGIN,
            "id": "msg_1",
            "usage": {
                "input_tokens": 2,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 1,
                "output_tokens": 1,
            },
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 'a "usage"'}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]
STREAMS = [(calls.RESPONSES, COMPLETE), (calls.MESSAGES, MESSAGE)]


def sends(*events: Json) -> Callable[[Asked], Awaitable[None]]:
    async def behave(asked: Asked) -> None:
        await asked.begin_stream()
        for each in events:
            await asked.send(event(each))

    return behave


def body(path: str, *, stream: bool = False) -> Json:
    asked = {"input": "hello"} if path == calls.RESPONSES else {"messages": [{"role": "user", "content": "hello"}]}
    return {"model": "chat", "stream": stream, **asked}


async def ask(client: Client, path: str, *, stream: bool = False) -> bytes:
    return b"".join([piece async for piece in pieces(await client.ask(body(path, stream=stream), path))])


@pytest.mark.parametrize(("path", "events"), STREAMS)
def test_a_complete_stream_passes_as_it_is_and_its_tokens_are_counted(path: str, events: list[Json]) -> None:
    async def work(client: Client, engines: list[Engine]) -> None:
        assert await ask(client, path, stream=True) == b"".join(map(event, events))
        [exchange] = client.ended
        assert (exchange.status, exchange.prompt_tokens, exchange.answer_tokens) == (200, 7, 3)
        assert engines[0].asked[0].head.startswith(f"POST /v1{path} HTTP/1.1")
        assert engines[0].asked[0].body == body(path, stream=True), "no counts are asked for: they come in any case"

    with_engines(1, work, sends(*events))


@pytest.mark.parametrize("path", [calls.RESPONSES, calls.MESSAGES])
def test_the_tokens_of_a_whole_answer_are_counted(path: str) -> None:
    usage = USED if path == calls.RESPONSES else MESSAGE[0]["message"]["usage"] | {"output_tokens": 3}

    async def whole(asked: Asked) -> None:
        await asked.answer(200, {"output": [{"text": 'say "usage": {"output_tokens": 9}'}], "usage": usage})

    async def work(client: Client, _engines: list[Engine]) -> None:
        assert json.loads(await ask(client, path))["usage"] == usage
        assert (client.ended[0].prompt_tokens, client.ended[0].answer_tokens) == (7, 3)

    with_engines(1, work, whole)


def test_a_count_of_tokens_is_no_prompt() -> None:
    async def counts(asked: Asked) -> None:
        await asked.answer(200, {"input_tokens": 25})

    async def work(client: Client, _engines: list[Engine]) -> None:
        assert json.loads(await ask(client, calls.MESSAGES_TOKENS)) == {"input_tokens": 25}
        assert (client.ended[0].prompt_tokens, client.ended[0].answer_tokens) == (0, 0)

    with_engines(1, work, counts)


@pytest.mark.parametrize("name", ["completed", "incomplete", "failed"])
def test_a_response_has_an_end_whatever_came_of_it(name: str) -> None:
    async def work(client: Client, _engines: list[Engine]) -> None:
        last = {"type": f"response.{name}", "sequence_number": 1, "response": {**RESPONSE, "usage": USED}}
        nameless = json.dumps(last).encode()

        async def unnamed(asked: Asked) -> None:
            await asked.begin_stream()
            await asked.send(b"data: " + nameless + b"\n\n")

        for behaviour in (sends(COMPLETE[0], last), unnamed):
            _engines[0].behaviour = behaviour
            assert b'"error"' not in await ask(client, calls.RESPONSES, stream=True)
        assert [(each.status, each.answer_tokens) for each in client.ended] == [(200, 3), (200, 3)]

    with_engines(1, work)


@pytest.mark.parametrize(("path", "events"), STREAMS)
def test_a_stream_that_breaks_off_ends_with_the_event_of_its_api(path: str, events: list[Json]) -> None:
    async def work(client: Client, _engines: list[Engine]) -> None:
        *_, last = events_of(await ask(client, path, stream=True))
        assert last["type"] == "error" and "broke the connection" in last["error"]["message"]
        assert last["error"]["type"] == ("api_error" if path == calls.MESSAGES else "server_error")
        if path == calls.RESPONSES:
            assert (last["message"], last["code"]) == (last["error"]["message"], None)
        assert client.ended[0].status == 502

    with_engines(1, work, sends(*events[:-1]))


@pytest.mark.parametrize(("path", "events"), STREAMS)
def test_a_service_that_wakes_up_streams_in_each_api(
    path: str, events: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "FRESH_SECONDS", 0.0)

    async def refuses(asked: Asked) -> None:
        await asked.answer(400, {"error": {"message": "too\nlong", "code": 400, "type": "x"}})

    async def work(client: Client, engines: list[Engine]) -> None:
        for behaviour in (engines[0].behaviour, refuses):
            there, engines[0].behaviour = asleep(client), behaviour
            answer = pieces(await client.ask(body(path, stream=True), path))
            assert await anext(answer) == b": waiting\n\n"
            client.stored.list = there
            told = events_of(b"".join([piece async for piece in answer]))
        assert told[0]["type"] == "error" and told[0]["error"]["message"] == "too\nlong"
        assert [each.status for each in client.ended] == [200, 400]

    with_engines(1, work, sends(*events), idle_seconds=60)


# -- what engines lack ------------------------------------------------------------------------------------------------


def test_a_call_that_the_engine_is_known_to_lack_is_not_passed_on() -> None:
    async def work(client: Client, engines: list[Engine]) -> None:
        with pytest.raises(LacksCall, match="the engine http of chat does not support /v1/embeddings"):
            await client.ask(body(calls.MESSAGES), calls.EMBEDDINGS)
        assert not engines[0].asked and not client.ended
        assert b"abc" in await ask(client, calls.CHAT)

    with_engines(1, work, abilities={"calls": [calls.CHAT], "context_length": 9, "capabilities": ["completion"]})


@pytest.mark.parametrize(
    ("status", "said", "words"),
    [
        (404, b'{"error": {"message": "File Not Found", "code": 404}}', "File Not Found"),
        (404, b'{"detail": "Not Found"}', "Not Found"),
        (404, b"404 page not found", "404 page not found"),
        (405, b"", "no reason"),
        (501, b'{"error": {"message": "Start it with --embeddings"}}', "Start it with"),
    ],
)
@pytest.mark.parametrize(
    "path", [calls.RESPONSES, calls.MESSAGES, calls.MESSAGES_TOKENS, calls.EMBEDDINGS, calls.RERANK]
)
def test_an_engine_that_does_not_know_a_call_is_named(path: str, status: int, said: bytes, words: str) -> None:
    async def unknown(asked: Asked) -> None:
        await asked.send(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(said), said))

    async def work(client: Client, _engines: list[Engine]) -> None:
        expected = f"the engine http of chat returned HTTP {status} for /v1{path}: {words}"
        with pytest.raises(LacksCall, match=expected) as lacks:
            await client.ask(body(path), path)
        assert lacks.value.status == 404 and [each.status for each in client.ended] == [404]
        assert client.gateway.routes.busy["v-a-1"] == 0

    with_engines(1, work, unknown)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (b'{"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error"}}', "", "too long"),
        (b'{"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}}', "", "too long"),
        (b'{"object": "error", "message": "too long", "code": 400}', "invalid_request_error", "too long"),
        (b'{"detail": "too long"}', "invalid_request_error", "too long"),
        (b"too long", "invalid_request_error", "too long"),
        (b'{"error": "too long"}', "invalid_request_error", "too long"),
        (b"", "invalid_request_error", "HTTP 400 without"),
        (b"[" * 100_000, "invalid_request_error", "[[["),
        (b"\xff", "invalid_request_error", "\ufffd"),
    ],
)
@pytest.mark.parametrize("path", [calls.CHAT, calls.RESPONSES, calls.MESSAGES])
def test_an_engines_error_has_the_form_of_the_path(path: str, said: bytes, kind: str, words: str) -> None:
    async def refuses(asked: Asked) -> None:
        await asked.send(b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))

    async def work(client: Client, _engines: list[Engine]) -> None:
        for stream in (False, True):
            answer = await client.ask(body(path, stream=stream), path)
            told = json.loads(bytes(answer.body))
            assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
            assert words in told["error"]["message"] and told["error"]["type"]
            if path == calls.MESSAGES:
                assert told["type"] == "error" and told["error"]["type"] == "invalid_request_error"
            elif kind:
                assert told["error"] == {"message": told["error"]["message"], "type": kind, "param": None, "code": None}
            else:
                assert answer.body == said, "it is passed on as it is"

    with_engines(1, work, refuses)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_errors_of_the_gateway_have_types_of_anthropics_api(status: int) -> None:
    types = {500: "api_error", 502: "api_error", 503: "overloaded_error", 504: "timeout_error"}
    raised = {500: errors.ClusterError, 502: BadUpstream, 503: errors.Unavailable, 504: openai.TooLate}
    told = error_forms.body(raised[status]("why"), "/v1/messages/count_tokens")
    assert told == {"type": "error", "error": {"type": types[status], "message": "why"}}


# -- what engines send incomplete -------------------------------------------------------------------------------------

ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
CALL = {"type": "function_call", "call_id": "fc_1", "name": "f", "arguments": "", "status": "in_progress"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [], "status": "in_progress"}
#: Events of llama.cpp, with the item and part of each.
NUMBERED: list[tuple[Json, int | None, int | None]] = [
    ({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}, None, None),
    ({"type": "response.in_progress", "response": {"id": "r", "status": "in_progress"}}, None, None),
    ({"type": "response.output_item.added", "item": THOUGHT}, 0, None),
    ({"type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": "hm"}, 0, 0),
    ({"type": "response.output_item.added", "item": ITEM}, 1, None),
    ({"type": "response.content_part.added", "item_id": "msg_1", "part": {"type": "output_text"}}, 1, 0),
    ({"type": "response.output_text.delta", "item_id": "msg_1", "delta": "é"}, 1, 0),
    ({"type": "response.content_part.added", "item_id": "msg_1", "part": {"type": "refusal"}}, 1, 1),
    ({"type": "response.refusal.delta", "item_id": "msg_1", "delta": "no"}, 1, 1),
    ({"type": "response.output_item.added", "item": CALL}, 2, None),
    ({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"}, 2, None),
    ({"type": "response.function_call_arguments.delta", "delta": "{}"}, 2, None),
    ({"type": "response.output_item.done", "item": THOUGHT}, 0, None),
    ({"type": "response.output_item.done", "item": ITEM}, 1, None),
    ({"type": "response.output_item.done", "item": CALL}, 2, None),
    ({"type": "response.completed", "response": {**RESPONSE, "usage": USED}}, None, None),
]


def test_events_of_a_response_are_numbered_where_the_engine_does_not() -> None:
    async def work(client: Client, _engines: list[Engine]) -> None:
        told = events_of(await ask(client, calls.RESPONSES, stream=True))
        assert [each["sequence_number"] for each in told] == list(range(len(NUMBERED)))
        for got, (sent, item, part) in zip(told, NUMBERED, strict=True):
            assert (got.get("output_index"), got.get("content_index")) == (item, part), sent
            assert {name: got[name] for name in sent} == sent, "nothing else is changed"
        assert (client.ended[0].prompt_tokens, client.ended[0].answer_tokens) == (7, 3)

    with_engines(1, work, sends(*(each for each, _, _ in NUMBERED)))


def test_events_that_begin_a_response_come_once() -> None:
    """llama.cpp repeats these events if the first token is only part of a character."""
    first, second = NUMBERED[0][0], NUMBERED[1][0]
    rest = [each for each, _, _ in NUMBERED[4:]]

    async def work(client: Client, _engines: list[Engine]) -> None:
        told = events_of(await ask(client, calls.RESPONSES, stream=True))
        assert [each["type"] for each in told] == [each["type"] for each in (first, second, *rest)]
        assert [each["sequence_number"] for each in told] == list(range(len(told)))

    with_engines(1, work, sends(first, second, rest[0], first, second, *rest[1:]))


def test_a_message_begins_with_its_first_event_where_the_engine_left_it_out() -> None:
    async def work(client: Client, engines: list[Engine]) -> None:
        start, *rest = events_of(await ask(client, calls.MESSAGES, stream=True))
        assert start["type"] == "message_start" and start["message"]["model"] == "chat"
        assert start["message"]["usage"] == {"input_tokens": 0, "output_tokens": 0}
        assert rest == MESSAGE[1:] and client.ended[0].answer_tokens == 3
        engines[0].behaviour = sends({"type": "ping"}, *MESSAGE)
        assert events_of(await ask(client, calls.MESSAGES, stream=True)) == [{"type": "ping"}, *MESSAGE]

    with_engines(1, work, sends(*MESSAGE[1:]))


@pytest.mark.parametrize(
    "odd",
    [
        b"data: [DONE]\n\n",
        b": ping\n\n",
        b"event: x\ndata: {\n\n",
        b"data: []\n\n",
        b'data: {"type": 3}\n\n',
        b'data: {"type": "error", "message": "x"}\n\n',
        b"data: " + b'{"a":' * 10_000 + b"\n\n",
        b"event: response.x\n\n",
        b'data: {"type":\ndata: "response.x"}\n\n',
    ],
)
def test_frames_that_are_no_events_of_a_response_pass_as_they_are(odd: bytes) -> None:
    assert event_repairs.of(calls.RESPONSES, "chat")(odd) == odd


def test_an_engine_with_endless_items_takes_no_memory_for_them() -> None:
    repair = event_repairs.of(calls.RESPONSES, "chat")
    for number in range(2000):
        last = repair(
            event({"type": "response.output_item.added", "item": {"id": f"item-{number}", "type": "message"}})
        )
        repair(event({"type": "response.output_item.added", "item": {"id": "x" * 1000, "type": "message"}}))
    items = repair.__self__.items  # type: ignore[attr-defined]
    assert len(items) <= event_repairs.MOST_ITEMS and json.loads(last.split(b"data: ")[1])["sequence_number"] == 3998


# -- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [10, MOST_BYTES - 200, MOST_BYTES, 3 * MOST_BYTES])
@pytest.mark.parametrize("size", [1 << 12, 1 << 16])
def test_a_response_of_any_length_has_its_end_and_its_counts(length: int, size: int) -> None:
    """In the last event, vLLM repeats the instructions and tools of a request."""
    last = {**COMPLETE[-1], "response": {**RESPONSE, "instructions": "x" * length, "usage": USED, "user": None}}
    text, frames = event(COMPLETE[0]) + event(last) + event(MESSAGE[2]), Frames(hide_usage=False)
    got = b"".join(frame for at in range(0, len(text), size) for frame in frames.feed(text[at : at + size]))
    assert got == text and frames.done and openai.tokens(frames.usage) == (7, 3)


def test_counts_of_a_stream_take_no_memory_and_what_is_none_changes_nothing() -> None:
    frames = Frames(hide_usage=False)
    for number in range(100):
        list(frames.feed(event({"type": "message_delta", "usage": {f"x{number}": 1, "output_tokens": number}})))
    list(frames.feed(event({"type": "message_delta", "usage": {"output_tokens": -1, "input_tokens": True}})))
    assert frames.usage == {"output_tokens": 99} and not frames.done


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2, "input_tokens": 5, "output_tokens": 2}, (5, 2)),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1, "output_tokens": 2},
            (8, 2),
        ),
        ({"prompt_tokens": 5, "total_tokens": 5}, (5, 0)),
        ({"input_tokens": "5"}, (0, 0)),
        (None, (0, 0)),
        ([], (0, 0)),
    ],
)
def test_tokens_are_read_by_the_names_of_each_api(usage: Any, tokens: tuple[int, int]) -> None:
    assert openai.tokens(usage) == tokens


# -- prefixes ---------------------------------------------------------------------------------------------------------


def test_later_turns_have_the_prefix_of_the_first_in_each_api() -> None:
    first: list[Json] = [{"role": "user", "content": "one"}]
    later = [*first, {"role": "assistant", "content": "a"}, {"role": "user", "content": "two"}]

    def of(path: str, **asked: Any) -> bytes:
        return affinity.prefix("a", path, asked)

    for path, name, system in ((calls.RESPONSES, "input", "instructions"), (calls.MESSAGES, "messages", "system")):
        assert of(path, **{name: first}) == of(path, **{name: later}) != b""
        assert of(path, **{name: first, system: "x"}) == of(path, **{name: later, system: "x"})
        assert of(path, **{name: first, system: "x"}) != of(path, **{name: first, system: "y"})
        assert of(path, **{name: []}) == of(path, **{system: "x"}) == b""
    assert of(calls.RESPONSES, input="one") != of(calls.RESPONSES, input="two") != b""
    assert of(calls.MESSAGES_TOKENS, messages=first) == of(calls.RERANK, query="x", documents=["y"]) == b""


# -- what engines say of models ---------------------------------------------------------------------------------------


def abilities(engine: str, given: Model | None, **parameters: Any) -> tuple[Any, Any, Any]:
    found = registry.abilities(engine, registry.definition(engine).Parameters(**parameters), given)
    return found.context_length, found.capabilities, found.calls


def test_engines_say_what_their_replicas_can_be_asked_for() -> None:
    gguf = model({"a.gguf": 1})
    assert abilities("llamacpp", gguf)[:2] == (4096, ("completion",))
    assert {calls.CHAT, calls.RESPONSES, calls.MESSAGES} < set(abilities("llamacpp", gguf)[2])
    assert abilities("llamacpp", gguf, reranking=True) == (4096, ("rerank",), (calls.RERANK,))
    context, capabilities, answered = abilities("llamacpp", gguf, embeddings=True, context=64)
    assert (context, capabilities) == (64, ("embedding",)) and calls.EMBEDDINGS in answered
    assert abilities("transformers", model(), context=9000) == (8192, ("completion",), (calls.CHAT, calls.COMPLETIONS))
    assert abilities("vllm", model()) == (8192, None, None)
    for architecture, capability in (("LlamaForCausalLM", ("completion",)), ("BertModel", None)):
        known = model(WEIGHTS, {**CONFIG, "architectures": [architecture]})
        assert abilities("vllm", known, context=512) == (512, capability, None)
    for odd in ({}, {"architectures": "LlamaForCausalLM"}, {"architectures": [3], "max_position_embeddings": "x"}):
        assert abilities("vllm", model(WEIGHTS, odd)) == (None, None, None)
    assert abilities("http", None, command=["x"]) == (None, None, None)


def test_a_context_is_at_most_the_one_that_a_gguf_file_names(tmp_path: Any) -> None:
    from tests import tiny_model

    tiny_model.write(tmp_path / "tiny.gguf")
    data = (tmp_path / "tiny.gguf").read_bytes()
    given = Model(artifact="a", name="t", files={"t.gguf": len(data)}, head=lambda path, most: data[:most])
    assert abilities("llamacpp", given)[0] == 512 and abilities("llamacpp", given, context=100)[0] == 100


def test_a_request_says_where_it_streams_and_what_is_asked_of_chats_alone() -> None:
    for path in (calls.RESPONSES, calls.MESSAGES, calls.EMBEDDINGS):
        asked = gateway.question("default", path, {"model": "chat", "stream": True})
        assert asked.streams and not asked.hide_usage and b"stream_options" not in asked.content
