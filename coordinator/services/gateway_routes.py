"""Routes of OpenAI's API: models that are served, and calls that replicas answer. Needs the scope infer."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import Path, Request, Response

from coordinator import bodies, http
from coordinator.asker import Scope
from coordinator.http import shown
from coordinator.services import openai, schemas
from coordinator.services.gateway import Gateway, Question, question
from coordinator.services.routing import Route
from coordinator.state import shared_state
from jobs import errors

routes = http.router(openai.PREFIX)

_INFER = [http.needs(Scope.INFER)]
#: Bytes of a request, and values in it.
MAX_BODY, MAX_VALUES = 8 << 20, 500_000
#: Seconds for which a large request waits for room.
ROOM_SECONDS = 30.0
_CALL: dict[str, Any] = {
    "tags": ["inference"], "dependencies": _INFER, **http.answers(schemas.Inferred),
    "openapi_extra": http.describes(schemas.Inference),
}  # fmt: skip


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
    service = route.service
    return {
        "id": service.name, "object": "model", "created": service.created // 1000, "owned_by": service.tenant,
        "ready": len(route.ready),
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


@routes.post(openai.CHAT, **_CALL)
async def chat(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """Continue a conversation; with `stream`, token by token."""
    return await _passed_on(request, asker, openai.CHAT)


@routes.post(openai.COMPLETIONS, **_CALL)
async def complete(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """Continue a text; with `stream`, token by token."""
    return await _passed_on(request, asker, openai.COMPLETIONS)


@routes.post(openai.EMBEDDINGS, **_CALL)
async def embed(request: Request, asker: http.AskerDep, _cluster: http.ClusterDep) -> Response:
    """Return the vectors of texts."""
    return await _passed_on(request, asker, openai.EMBEDDINGS)
