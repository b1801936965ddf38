"""Routes of OpenAI's and Anthropic's APIs: models that are served, and calls that replicas answer."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import BaseModel

from coordinator import bodies, http
from coordinator.asker import Scope
from coordinator.http import shown
from coordinator.services import openai, schemas
from coordinator.services.gateway import Gateway, Question, question
from coordinator.services.routing import Route
from coordinator.state import shared_state
from engines import calls
from jobs import errors

routes = http.router(openai.PREFIX)

_INFER = [http.needs(Scope.INFER)]
#: Bytes of a request, and values in it.
MAX_BODY, MAX_VALUES = 8 << 20, 500_000
#: Seconds for which a large request waits for room.
ROOM_SECONDS = 30.0


def _called(answer: type[BaseModel]) -> dict[str, Any]:
    """Return the arguments of a route whose calls reach engines."""
    described = http.describes(schemas.Inference)
    return {"tags": ["inference"], "dependencies": _INFER, **http.answers(answer), "openapi_extra": described}


_CALL = _called(schemas.Inferred)


def _gateway(request: Request) -> Gateway:
    gateway: Gateway = shared_state(request).gateway
    return gateway


@routes.get("/models", tags=["inference"], dependencies=_INFER, **http.answers(schemas.ModelList))
async def list_models(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """List the models that the tenant serves."""
    found = await _gateway(request).routes.of_tenant(asker.tenant)
    return shown({"object": "list", "data": [_row(route) for route in found]})


@routes.get("/models/{model}", tags=["inference"], dependencies=_INFER, **http.answers(schemas.ServedModel))
async def one_model(
    request: Request, model: Annotated[str, Path(max_length=64)], asker: http.AskerDep, _cluster: http.ClusterDep
) -> Response:
    """Show a model that the tenant serves."""
    return shown(_row(await _gateway(request).routes.find(asker.tenant, model)))


def _row(route: Route) -> dict[str, Any]:
    service, known = route.service, route.abilities
    context = known.get("context_length")
    return {
        "id": service.name, "object": "model", "created": service.created // 1000, "owned_by": service.tenant,
        "ready": len(route.ready), "context_length": context, "max_model_len": context,
        "capabilities": known.get("capabilities"),
    }  # fmt: skip


async def _passed_on(request: Request, asker: http.AskerDep, path: str) -> Response:
    gateway, size = _gateway(request), bodies.announced(request, MAX_BODY)
    async with AsyncExitStack() as held:
        await held.enter_async_context(gateway.requests.room(asker.tenant, size, ROOM_SECONDS))
        return await gateway.answer(request, await _question(request, asker, path), held)


async def _question(request: Request, asker: http.AskerDep, path: str) -> Question:
    """Return what is asked, and keep nothing else: a body and what was parsed of it are several times as large."""
    async with bodies.octets(request, MAX_BODY) as text, _gateway(request).turn(len(text)):
        body = bodies.parsed(text, MAX_VALUES)
        if not isinstance(body, dict):
            raise errors.InvalidRequest("the body must be an object", field="body")
        return question(asker.tenant, path, body)


@routes.post(calls.CHAT, **_CALL)
async def chat(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """Continue a conversation; with `stream`, token by token."""
    return await _passed_on(request, asker, calls.CHAT)


@routes.post(calls.COMPLETIONS, **_CALL)
async def complete(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """Continue a text; with `stream`, token by token."""
    return await _passed_on(request, asker, calls.COMPLETIONS)


@routes.post(calls.EMBEDDINGS, **_CALL)
async def embed(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """Return the vectors of texts."""
    return await _passed_on(request, asker, calls.EMBEDDINGS)


@routes.post(calls.RERANK, **_called(schemas.Ranked))
async def rank(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """Rank documents by how well they fit a query."""
    return await _passed_on(request, asker, calls.RERANK)


@routes.post(calls.RESPONSES, **_CALL)
async def respond(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """Answer an input; with `stream`, event by event. Responses are not stored."""
    return await _passed_on(request, asker, calls.RESPONSES)


@routes.post(calls.RESPONSES_TOKENS, **_called(schemas.CountedTokens))
async def count_input_tokens(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """Count the tokens of an input without answering it."""
    return await _passed_on(request, asker, calls.RESPONSES_TOKENS)


@routes.post(calls.MESSAGES, **_called(schemas.Message))
async def message(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """Continue a conversation as Anthropic's API does; with `stream`, event by event."""
    return await _passed_on(request, asker, calls.MESSAGES)


@routes.post(calls.MESSAGES_TOKENS, **_called(schemas.CountedTokens))
async def count_message_tokens(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """Count the tokens of a conversation without continuing it, as Anthropic's API does."""
    return await _passed_on(request, asker, calls.MESSAGES_TOKENS)
