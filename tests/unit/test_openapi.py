"""Tests that the API description used to build the pages matches the code."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from coordinator import app, openapi
from coordinator.server import http
from coordinator.server.description import DescribedApi
from jobs.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def api() -> FastAPI:
    return app.create(Settings())


@pytest.fixture(scope="module")
def description(api: FastAPI) -> dict[str, Any]:
    return api.openapi()


def test_the_pages_description_is_that_of_the_code() -> None:
    kept = (ROOT / "web/openapi.json").read_text()
    assert kept == openapi.text(), "web/openapi.json is of another version of the API; run: make openapi"


def test_every_answer_is_typed(description: dict[str, Any]) -> None:
    """Pages cannot use a route whose response is an untyped object."""
    loose = []
    for path, verbs in description["paths"].items():
        for verb, route in verbs.items():
            for code, answer in route["responses"].items():
                schema = answer.get("content", {}).get("application/json", {}).get("schema")
                if code.startswith("2") and schema is not None and "$ref" not in schema:
                    loose.append(f"{verb} {path}")
    assert loose == ["get /api/jobs/{job_id}/{question}.json"], "what a question answers is its kind's business"


def operations(description: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for verbs in description["paths"].values() for operation in verbs.values()]


def test_all_errors_have_the_same_schema(description: dict[str, Any]) -> None:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for operation in operations(description):
        errors = [operation["responses"][status]["content"] for status in ("4XX", "5XX")]
        assert errors == [problem, problem], operation["operationId"]


def test_each_json_body_refers_to_a_named_schema(description: dict[str, Any]) -> None:
    """Generators name inline schemas after the operation, so the same body would have many names."""
    inline = [
        operation["operationId"]
        for operation in operations(description)
        if (content := operation.get("requestBody", {}).get("content", {}).get("application/json"))
        and content["schema"].keys() != {"$ref"}
    ]
    assert inline == ["submit_workflow", "validate_workflow"], "docs/workflows.md defines their format"


def test_each_operation_has_a_described_tag_and_states_its_security(description: dict[str, Any]) -> None:
    tags = {tag["name"]: tag["description"] for tag in description["tags"]}
    found = operations(description)
    assert all(tags.values()) and {tuple(each["tags"]) for each in found} == {(name,) for name in tags}
    without = [each["operationId"] for each in found if each["security"] == []]
    assert without == ["health", "ready", "login", "get_authority", "get_installer", "get_wheel"]
    assert all(each["security"] in ([], [{"HTTPBearer": []}]) for each in found)


def test_operations_have_short_unique_names(description: dict[str, Any]) -> None:
    names = [operation["operationId"] for operation in operations(description)]
    assert len(set(names)) == len(names) and all(re.fullmatch("[a-z][a-z0-9_]{1,40}", name) for name in names)


def test_all_references_resolve(description: dict[str, Any]) -> None:
    used = set(re.findall('"#/components/schemas/([^"]*)"', json.dumps(description)))
    assert used == description["components"]["schemas"].keys()


def test_tuples_also_declare_items(description: dict[str, Any]) -> None:
    """Spectral and older generators reject an array without `items`."""
    path = description["components"]["schemas"]["UnitStates"]["properties"]["runs"]["items"]
    assert path["prefixItems"] and path["items"]["anyOf"]
    assert json.dumps(description).count('"prefixItems"') >= 4


def test_two_request_bodies_cannot_have_the_same_name() -> None:
    class Submission(BaseModel):
        color: str

    with pytest.raises(TypeError, match="two types of the API are called Submission"):
        http.describe_body(Submission)


def test_a_request_body_and_a_response_cannot_have_the_same_name() -> None:
    class Named(BaseModel):
        color: str

    class Sent(BaseModel):
        color: str

    Sent.__name__ = "Named"
    tried = DescribedApi(title="tried")
    tried.post("/tried", **http.describe_response(Named, body=Sent))(lambda: None)
    with pytest.raises(TypeError, match="two types of the API are called Named"):
        tried.openapi()


def test_the_served_description_differs_from_the_committed_one_only_in_its_servers(api: FastAPI) -> None:
    async def ask() -> Any:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://127.0.0.1") as client:
            return (await client.get("/api/openapi.json")).json()

    served, kept = asyncio.run(ask()), json.loads((ROOT / "web/openapi.json").read_text())
    assert served.pop("servers") == [{"url": "/", "description": "This cluster"}]
    assert kept.pop("servers") == [{"url": "http://127.0.0.1:3000", "description": "A cluster on this machine"}]
    assert served == kept


def test_others_are_answered_while_the_description_is_made() -> None:
    """Creating the description takes a fifth of a second of CPU time, and seconds on a busy machine."""
    api, begun, made = app.create(Settings()), threading.Event(), threading.Event()

    def describe() -> dict[str, Any]:
        begun.set()
        assert made.wait(20), "nobody else was answered"
        return {"openapi": "3.1.0"}

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://127.0.0.1") as client:
            asked = asyncio.create_task(client.get("/api/openapi.json"))
            await asyncio.to_thread(begun.wait, 20)
            assert (await client.get("/health")).status_code == 200
            made.set()
            assert (await asked).json()["openapi"] == "3.1.0"

    api.openapi = describe  # type: ignore[method-assign]
    asyncio.run(ask())
