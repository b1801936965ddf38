"""Build the OpenAPI description of the API: FastAPI's description, completed for generators of clients."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from coordinator.server import nulls

Schema: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal["validation", "serialization"]

_REFERENCE = "#/components/schemas/"
#: Descriptions of the tags, which divide the operations by subject.
TAGS = {
    "access": "Log in, manage API tokens and secrets, and read the audit log.",
    "artifacts": "Upload and download files, and combine them into artifacts.",
    "cluster": "Workers, hosts, kinds of jobs, metrics and alerts of the cluster.",
    "events": "Follow jobs and the cluster live, as server-sent events.",
    "fleet": "Record profiles of hosts and GPUs.",
    "health": "Check whether a coordinator is alive and ready.",
    "inference": "Call models that the cluster serves, with the APIs of OpenAI and Anthropic.",
    "jobs": "Submit jobs, follow and control them, and read their results.",
    "logs": "Read the output of programs.",
    "models": "Register models and data, and copy them between hosts.",
    "programs": "Open shells in running programs.",
    "services": "Start, scale and stop services such as language models.",
    "tenants": "Weights, caps and usage of tenants.",
    "worker": "Calls of workers that have no access to Redis.",
    "workflows": "Submit and control workflows, which are graphs of jobs and other actions.",
}

#: Types of request bodies (validation) and of errors (serialization). `refer` adds them when routes are imported.
_types: dict[Mode, dict[str, Any]] = {"validation": {}, "serialization": {}}


def refer(model: Any, mode: Mode) -> dict[str, str]:
    """Return an OpenAPI reference to the type of a request body or an error, and add the type to the description."""
    name = model.__name__
    if _types[mode].setdefault(name, model) is not model:
        raise TypeError(f"two types of the API are called {name}; rename one of them")
    return {"$ref": f"{_REFERENCE}{name}"}


class DescribedApi(FastAPI):
    """Application whose description includes the types of request bodies, which routes parse themselves."""

    def openapi(self) -> Schema:
        """Return the OpenAPI description, which is built by the first call."""
        if not self.openapi_schema:
            tags = [{"name": name, "description": text} for name, text in TAGS.items()]
            self.openapi_schema = _complete(
                get_openapi(
                    title=self.title,
                    version=self.version,
                    description=self.description,
                    license_info={"name": "Apache License 2.0", "identifier": "Apache-2.0"},
                    servers=[{"url": "http://127.0.0.1:3000", "description": "A cluster on this machine"}],
                    tags=tags,
                    routes=self.routes,
                )
            )
        return self.openapi_schema


def _complete(description: Schema) -> Schema:
    """Add the types of request bodies and errors, and what tools require although OpenAPI has a default for it."""
    for methods in description["paths"].values():
        for operation in methods.values():
            operation.setdefault("security", [])
    text = json.dumps(description["paths"])
    responses = description["components"]["schemas"]
    problems, requests = _define_types("serialization", text), _define_types("validation", text)
    for name in responses.keys() & (problems.keys() | _types["validation"].keys()):
        if responses[name] != problems.get(name):
            raise TypeError(f"two types of the API are called {name}; rename one of them")
    schemas = responses | problems
    schemas |= _rename(requests, {name: f"{name}Input" for name in requests.keys() & schemas})
    description["components"]["schemas"] = dict(sorted(schemas.items()))
    _declare_items(description)
    return description


def _define_types(mode: Mode, text: str) -> Schema:
    """Return the schemas of the types of this mode that a text refers to, and of their parts, by name."""
    used = [name for name in _types[mode] if f'"{_REFERENCE}{name}"' in text]
    inputs = [(name, mode, TypeAdapter(_types[mode][name])) for name in used]
    found: Schema = TypeAdapter.json_schemas(inputs, ref_template=f"{_REFERENCE}{{model}}")[1].get("$defs", {})
    return {name: nulls.allow(schema, found) for name, schema in found.items()} if mode == "validation" else found


def _rename(schemas: Schema, names: dict[str, str]) -> Schema:
    """Rename parts of requests that also occur in responses, where null has another meaning."""
    text = json.dumps(schemas)
    for name, new in names.items():
        text = text.replace(f'"{_REFERENCE}{name}"', f'"{_REFERENCE}{new}"')
    renamed: Schema = json.loads(text)
    for name, new in names.items():
        renamed[new] = renamed.pop(name) | {"title": new}
    return renamed


def _declare_items(value: Any) -> None:
    """Declare `items` for tuples, because some tools do not know `prefixItems`."""
    if isinstance(value, dict) and "prefixItems" in value:
        value["items"] = {"anyOf": list({json.dumps(each): each for each in value["prefixItems"]}.values())}
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _declare_items(each)
