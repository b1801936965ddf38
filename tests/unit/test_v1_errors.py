"""Tests errors under /v1 from all layers: in the format of the path's clients, and with an ID."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from coordinator import app
from coordinator.server import bodies
from coordinator.server.shutdown import ShutdownResponder
from coordinator.services import gateway_routes
from coordinator.services.gateway.gateway import Gateway
from jobs import errors
from jobs.settings import Settings
from jobs.store.server import connection
from tests.unit.test_pages import Client as Pages
from tests.unit.test_services import Served

#: Paths that use the error format of their own API: OpenAI's or Anthropic's.
CALLS = (
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/messages",
    "/v1/messages/count_tokens",
)
#: Error types in Anthropic's API, by status.
ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}
ID = "given-by-the-client_1"


@pytest.fixture
def api(any_redis_url: str) -> Iterator[Served]:
    served = Served(any_redis_url)
    yield served
    served.store.client.close()


def ask(
    asked: Any, path: str, method: str = "POST", token: str = "", content: bytes = b"{}", **headers: str
) -> httpx.Response:
    """Send a request to an ASGI application, with a token like the clients of both APIs."""

    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(asked, raise_app_exceptions=False)
        sent = {"Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000") as client:
            return await client.request(method, path, content=content, headers=sent)

    return asyncio.run(go())


def check(answer: httpx.Response, path: str, status: int, kind: str = "", code: str | None = None) -> str:
    """Check an error's format and ID, and return its message."""
    assert answer.status_code == status, answer.text
    told, error = answer.json(), answer.json()["error"]
    assert error["message"] and isinstance(error["type"], str)
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
    assert told["status"] == status and told["detail"] == error["message"], "it is a problem as elsewhere, too"
    assert answer.headers["content-type"] == "application/problem+json"
    if path.startswith("/v1/messages"):
        assert told["type"] == "error"
        assert error.keys() == {"type", "message"} and error["type"] == ANTHROPIC.get(status, "invalid_request_error")
        assert answer.headers["request-id"] == answer.headers["x-request-id"]
        return str(error["message"])
    assert kind in ("", error["type"])
    assert error.keys() == {"message", "type", "param", "code"} and error["code"] == code
    return str(error["message"])


@pytest.mark.parametrize("path", CALLS)
def test_who_asks_is_refused_in_the_form_of_the_path(api: Served, path: str) -> None:
    missing = ask(api.app, path)
    assert "the request has no token" in check(missing, path, 401, "authentication_error", "invalid_api_key")
    assert missing.headers["www-authenticate"] == "Bearer"
    check(ask(api.app, path, token="tc_wrong"), path, 401, "authentication_error", "invalid_api_key")
    check(ask(api.app, path, X_Api_Key="tc_wrong"), path, 401, "authentication_error", "invalid_api_key")
    check(ask(api.app, path, token=api.token("read")), path, 403, "permission_error")


@pytest.mark.parametrize("path", CALLS)
def test_a_request_that_cannot_be_read_is_refused_in_the_form_of_the_path(
    api: Served, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "invalid_request_error"
    check(ask(api.app, path, token=api.maker, content=b"{"), path, 400, kind)
    check(ask(api.app, path, token=api.maker, content=b"[]"), path, 400, kind)
    check(ask(api.app, path, token=api.maker, content=b"{}"), path, 400, kind)
    check(ask(api.app, path, token=api.maker, Content_Type="text/plain"), path, 415, kind)
    check(ask(api.app, path, method="GET", content=b""), path, 405, kind)
    monkeypatch.setattr(gateway_routes, "MAX_BODY", 100)
    check(ask(api.app, path, token=api.maker, content=b" " * 101), path, 413)

    async def slow(*_: Any, **__: Any) -> bytes:
        raise errors.TooSlow("the body did not arrive", field="body")

    monkeypatch.setattr(bodies, "read_bytes", slow)
    check(ask(api.app, path, token=api.maker), path, 408, kind)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (errors.OverLimit("later", seconds=7), 429, "rate_limit_error", "queue_full"),
        (errors.Unavailable("later"), 503, "server_error", None),
        (connection.Unreachable[0]("gone"), 503, "server_error", None),
        (RuntimeError("of the inner works"), 500, "server_error", None),
    ],
)
@pytest.mark.parametrize("path", CALLS)
def test_what_keeps_a_model_from_answering_is_told_in_the_form_of_the_path(
    api: Served, monkeypatch: pytest.MonkeyPatch, path: str, error: Exception, status: int, kind: str, code: str | None
) -> None:
    async def fails(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(Gateway, "answer", fails)
    answer = ask(api.app, path, token=api.maker, content=b'{"model": "web"}')
    check(answer, path, status, kind, code)
    if status == 429:
        assert answer.headers["retry-after"] == "7"
    assert "inner works" not in answer.text


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
def test_a_path_that_there_is_not_is_a_404_of_its_api(api: Served, method: str) -> None:
    for path in ("/v1", "/v1/", "/v1/nothing", "/v1/chat/completions/x", "/v1/metrics", "/v1/messages/x"):
        check(ask(api.app, path, method, api.maker, b""), path, 404, "invalid_request_error", "unknown_url")
    slash = ask(api.app, "/v1/models/", method, api.maker, b"")
    assert "it is /v1/models" in check(slash, "/v1", 404, "invalid_request_error", "unknown_url")


@pytest.mark.parametrize("path", CALLS)
def test_a_token_is_taken_as_the_clients_of_both_apis_send_it(api: Served, path: str) -> None:
    missing = b'{"model": "x"}'
    empty = {"Authorization": "Bearer ", "X_Api_Key": api.maker}  # Anthropic's client if ANTHROPIC_AUTH_TOKEN is empty
    for how in ({"Authorization": f"Bearer {api.maker}"}, {"X_Api_Key": api.maker}, empty):
        said = check(ask(api.app, path, content=missing, **how), path, 404, "invalid_request_error", "model_not_found")
        assert "has no model with this name" in said
    refused = ask(api.app, path, content=missing, Authorization="Bearer tc_wrong", X_Api_Key=api.maker)
    check(refused, path, 401, "authentication_error", "invalid_api_key")
    assert ask(api.app, "/api/status", "GET", content=b"", X_Api_Key=api.maker).status_code == 401
    assert ask(api.app, "/v1/models", "GET", content=b"", X_Api_Key=api.maker).status_code == 200


def test_a_parameter_that_is_not_valid_is_a_400_as_clients_expect(api: Served) -> None:
    answer = ask(api.app, f"/v1/models/{'x' * 65}", "GET", api.maker, b"")
    assert "at most 64" in check(answer, "/v1/models", 400, "invalid_request_error")
    assert answer.json()["error"]["param"] == "model"


@pytest.mark.parametrize("path", CALLS)
def test_layers_before_the_routes_answer_in_the_form_of_the_path(path: str) -> None:
    open_to_loopback = app.create(Settings(redis_url="redis://127.0.0.1:1/0", metrics_port=0))
    check(ask(open_to_loopback, path, Host="evil.example"), path, 403, "permission_error")
    check(ask(open_to_loopback, path, Origin="http://evil.example"), path, 403, "permission_error")
    page = "http://dask-0123456789ab.localhost:3000"
    check(ask(open_to_loopback, path, Origin=page), path, 403, "permission_error")


@pytest.mark.parametrize("path", CALLS)
def test_a_coordinator_that_stops_answers_in_the_form_of_the_path(path: str) -> None:
    async def go() -> list[Any]:
        sent: list[Any] = []

        async def waits(*_: Any) -> None:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        task = asyncio.create_task(ShutdownResponder(waits)({"type": "http", "path": path}, waits, send))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        await task
        return sent

    start, body = asyncio.run(go())
    assert start["status"] == 503 and json.loads(body["body"])["error"]["message"].startswith(
        "this coordinator is stopping"
    )


def test_an_id_that_came_with_the_request_is_kept_and_any_other_is_replaced(api: Served) -> None:
    assert ask(api.app, "/v1/models", "GET", api.maker, b"", X_Request_Id=ID).headers["x-request-id"] == ID
    for strange in ("short", "x" * 65, "with a space", "with\tanother", 'quoted"123'):
        answer = ask(api.app, "/v1/models", "GET", api.maker, b"", X_Request_Id=strange)
        assert answer.status_code == 200 and re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
    assert "x-request-id" not in ask(api.app, "/api/status", "GET", api.token("read"), b"").headers


def test_the_log_names_a_request_by_its_id(api: Served, capfd: pytest.CaptureFixture[str]) -> None:
    ask(api.app, "/v1/nothing", X_Request_Id=ID)
    assert ID in capfd.readouterr().out


def test_a_path_of_no_page_is_a_404_for_every_method(tmp_path: Any) -> None:
    (tmp_path / "index.html").write_text("here")
    (tmp_path / "cluster.html").write_text("here")
    (tmp_path / "kinds.html").write_text("here")
    pages = Pages(app.create(Settings(pages_dir=str(tmp_path), redis_url="redis://127.0.0.1:1/0", metrics_port=0)))
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        for path in ("/nothing", "/nothing/", "/v1x", "/kinds", "/assets/x.js"):
            answer = pages.request(method, path)
            assert (answer.status_code, answer.headers.get("allow")) == (404, None), (method, path)
            assert method == "HEAD" or "without the slash" not in answer.text
    for path in ("/", "/index.html", "/kinds.html"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            answer = pages.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS"), (method, path)
        assert pages.request("OPTIONS", path).headers["allow"] == "GET, HEAD, OPTIONS"
