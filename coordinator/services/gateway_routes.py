"""Routes of the OpenAI and Anthropic APIs: list models, and forward calls to replicas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import BaseModel

from coordinator.access.principal import Scope
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from coordinator.services import schemas
from coordinator.services.gateway import openai
from coordinator.services.gateway.gateway import Gateway, Question, question
from coordinator.services.gateway.routing import Route
from coordinator.state import shared_state
from engines import calls
from jobs import errors
from threads_protocol.answers import services as answers

routes = http.router(openai.PREFIX, tag="inference", scope=Scope.INFER)

#: Maximum size of a request body in bytes.
#: Maximum number of JSON values in a request body.
MAX_BODY, MAX_VALUES = 8 << 20, 500_000
#: Seconds for which a large request waits for free memory.
_ROOM_SECONDS = 30.0


def _gateway(request: Request) -> Gateway:
    gateway: Gateway = shared_state(request).gateway
    return gateway


@routes.get("/models", **http.describe_response(answers.ModelList))
async def list_served_models(request: Request, principal: http.PrincipalDep, _cluster: http.ClusterDep) -> Response:
    """List the models that the tenant serves."""
    found = await _gateway(request).routes.of_tenant(principal.tenant)
    return json_response({"object": "list", "data": [_row(route) for route in found]})


@routes.get("/models/{model}", **http.describe_response(answers.ServedModel))
async def get_served_model(
    request: Request,
    model: Annotated[str, Path(max_length=64)],
    principal: http.PrincipalDep,
    _cluster: http.ClusterDep,
) -> Response:
    """Return one model that the tenant serves."""
    return json_response(_row(await _gateway(request).routes.find(principal.tenant, model)))


def _row(route: Route) -> dict[str, Any]:
    service, known = route.service, route.abilities
    context = known["context_length"]
    return {
        "id": service.name,
        "object": "model",
        "created": service.created // 1000,
        "owned_by": service.tenant,
        "ready": len(route.ready),
        "context_length": context,
        "max_model_len": context,
        "capabilities": known["capabilities"],
    }


async def pass_on(request: Request, tenant: str, read: Callable[[], Awaitable[Question]]) -> Response:
    """Reserve memory for a request of this size, read its body with `read`, and return the response of a replica."""
    gateway, size = _gateway(request), bodies.declared_size(request, MAX_BODY)
    async with AsyncExitStack() as held:
        await held.enter_async_context(gateway.requests.room(tenant, size, _ROOM_SECONDS))
        return await gateway.answer(request, await read(), held)


async def _question(request: Request, tenant: str, path: str) -> Question:
    """Parse the request body. Keeps only the result, because the parsed JSON is several times as large."""
    async with bodies.open_bytes(request, MAX_BODY) as text, _gateway(request).turn(len(text)):
        body = bodies.parse_json(text, MAX_VALUES)
        if not isinstance(body, dict):
            raise errors.InvalidRequest("the body must be an object", field="body")
        return question(tenant, path, body)


#: Calls that replicas answer: path, route name, response model, description.
_CALLS = (
    (calls.CHAT, "chat", schemas.Inferred, "Continue a conversation; with `stream`, token by token."),
    (calls.COMPLETIONS, "complete_text", schemas.Inferred, "Continue a text; with `stream`, token by token."),
    (calls.EMBEDDINGS, "embed", schemas.Inferred, "Return the vectors of texts."),
    (calls.RERANK, "rank", schemas.Ranked, "Rank documents by how well they fit a query."),
    (
        calls.RESPONSES,
        "respond",
        schemas.Inferred,
        "Answer an input; with `stream`, event by event. Responses are not stored.",
    ),
    (
        calls.RESPONSES_TOKENS,
        "count_input_tokens",
        schemas.CountedTokens,
        "Count the tokens of an input without answering it.",
    ),
    (
        calls.MESSAGES,
        "message",
        schemas.Message,
        "Continue a conversation as Anthropic's API does; with `stream`, event by event.",
    ),
    (
        calls.MESSAGES_TOKENS,
        "count_message_tokens",
        schemas.CountedTokens,
        "Count the tokens of a conversation without continuing it, as Anthropic's API does.",
    ),
)


def _add_call(path: str, name: str, answer: type[BaseModel], description: str) -> None:
    @routes.post(path, name=name, description=description, **http.describe_response(answer, body=schemas.Inference))
    async def call(request: Request, principal: http.PrincipalDep, _cluster: http.ClusterDep) -> Response:
        return await pass_on(request, principal.tenant, lambda: _question(request, principal.tenant, path))


for _call in _CALLS:
    _add_call(*_call)
