"""Generator of the reference of the HTTP API, from its OpenAPI description."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from deploy.docs.markdown import code, prose, table

Schema: TypeAlias = dict[str, Any]
_HEAD = """\
# HTTP API

The API accepts and returns JSON. Send your token as `Authorization: Bearer TOKEN`. A running cluster serves its OpenAPI
description at `/api/openapi.json`, and an interactive page at `/api/docs`. You can [generate a
client](../../generated-clients.md) from the description.

Errors are `application/problem+json` as described in RFC 9457: `title` names the error, `detail` says what was wrong
and what to do, and `field` names the field of the request.

"""


class _Page:
    """Page about the operations of one domain of the API, and about their types."""

    def __init__(self, document: Schema) -> None:
        self._schemas: Schema = document["components"]["schemas"]
        self._tags = {tag["name"]: tag["description"] for tag in document["tags"]}
        self._used: list[str] = []

    def render(self, tag: str, operations: Sequence[tuple[str, str, Schema]]) -> str:
        parts = [
            f"# HTTP API: {tag}\n",
            f"{prose(self._tags[tag])}\n",
            *(self._operation(*each) for each in operations),
        ]
        types = [self._named(name) for name in _iterate_growing_list(self._used)]
        return "\n".join([*parts, *(["## Types\n", *sorted(types)] if types else [])])

    def _operation(self, method: str, path: str, operation: Schema) -> str:
        parts = [f"## {method} {path} {{ #{anchor(method, path)} }}\n", f"{prose(operation.get('description', ''))}\n"]
        parameters = (
            (code(each["name"]), each["in"], self._type(each["schema"]), prose(each.get("description", "")))
            for each in operation.get("parameters", ())
        )
        parts.append(table(("Parameter", "In", "Type", "Description"), parameters))
        for media, content in operation.get("requestBody", {}).get("content", {}).items():
            parts.append(self._content("Request body", media, content))
        for status, response in operation["responses"].items():
            if status.isdigit() and int(status) < HTTPStatus.BAD_REQUEST:
                media, content = next(iter(response.get("content", {}).items()), ("", {}))
                parts.append(self._content(f"Response {status} {HTTPStatus(int(status)).phrase}", media, content))
        return "\n".join(parts)

    def _content(self, title: str, media: str, content: Schema) -> str:
        schema = content.get("schema", {})
        if not media:
            return f"{title}, without a body.\n"
        if "properties" in schema:
            return f"{title}, {code(media)}:\n\n{self._fields(schema)}"
        return f"{title}, {code(media)}: {self._type(schema)}.\n"

    def _named(self, name: str) -> str:
        schema = self._schemas[name]
        text = "" if "properties" in schema else f"{self._type(schema)}\n"
        parts = (
            f"### {name} {{ #type-{name.lower()} }}",
            prose(schema.get("description", "")),
            text,
            self._fields(schema),
        )
        return "\n\n".join(filter(None, parts))

    def _fields(self, schema: Schema) -> str:
        required = schema.get("required", ())
        records = (
            (
                code(name),
                self._type(field),
                prose(field.get("description", "")) + ("" if name in required else " Optional."),
            )
            for name, field in schema.get("properties", {}).items()
        )
        return table(("Field", "Type", "Description"), records)

    def _type(self, schema: Schema) -> str:
        """Return a readable name of a type, for example `array of Job`."""
        if "$ref" in schema:
            name = str(schema["$ref"].rpartition("/")[2])
            if name not in self._used:
                self._used.append(name)
            return f"[{name}](#type-{name.lower()})"
        if "anyOf" in schema:
            return " or ".join(map(self._type, schema["anyOf"]))
        if "enum" in schema:
            return ", ".join(code(str(each)) for each in schema["enum"])
        if schema.get("type") == "array":
            return f"array of {self._type(schema.get('items', {}))}"
        return str(schema.get("type", "any"))


def render(root: Path) -> dict[str, str]:
    """Return the pages about the API, keyed by name. There is one page per domain, and the page `index`."""
    document = json.loads((root / "web/openapi.json").read_text())
    operations = defaultdict(list)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if "tags" in operation:
                operations[operation["tags"][0]].append((method.upper(), path, operation))
    records = (
        (f"[`{method} {path}`]({tag}.md#{anchor(method, path)})", prose(_first_sentence(operation)))
        for tag, found in sorted(operations.items())
        for method, path, operation in found
    )
    return {
        "index": _HEAD + table(("Request", "Description"), records),
        **{tag: _Page(document).render(tag, found) for tag, found in sorted(operations.items())},
    }


def anchor(method: str, path: str) -> str:
    return f"{method}{path}".lower().translate(str.maketrans("/.", "--", "{}"))


def _iterate_growing_list(names: list[str]) -> Iterator[str]:
    """Yield the names in a list to which the caller appends names during the iteration."""
    for index in count():
        if index >= len(names):
            return
        yield names[index]


def _first_sentence(operation: Schema) -> str:
    """Return the first sentence of the description of an API operation."""
    text = str(operation.get("description", ""))
    return text.partition("\n")[0].partition(". ")[0].rstrip(".;") + "." if text else ""
