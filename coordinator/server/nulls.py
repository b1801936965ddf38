"""Accept null in the optional fields of a request: such a field counts as absent.

Clients that are generated from OpenAPI often send null for each field that the caller did not set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

from pydantic import BaseModel

Schema: TypeAlias = dict[str, Any]


def omit(model: type[BaseModel], body: Mapping[str, Any]) -> Any:
    """Return a body without the nulls in optional fields whose type does not contain null."""
    schema = _schema(model)
    return _omit(schema, body, schema.get("$defs", {}))


def allow(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object that also declares null for the fields in which `omit` accepts it.

    Defaults of null are left out, because openapi-typescript makes each field with a default a required field.
    """
    optional = set(_optional(schema, definitions))
    properties = {
        name: _add_null(field)
        if name in optional
        else {key: value for key, value in field.items() if key != "default" or value is not None}
        for name, field in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties} if properties else schema


@cache
def _schema(model: type[BaseModel]) -> Schema:
    return model.model_json_schema()


def _omit(schema: Schema, value: Any, definitions: Mapping[str, Schema]) -> Any:
    schema = _resolve(schema, definitions)
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        value = _omit(choice, value, definitions)
    if isinstance(value, list) and "items" in schema:
        return [_omit(schema["items"], item, definitions) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    optional = set(_optional(schema, definitions))
    return {
        name: _omit(schema["properties"].get(name, {}), item, definitions)
        for name, item in value.items()
        if item is not None or name not in optional
    }


def _optional(schema: Schema, definitions: Mapping[str, Schema]) -> Iterator[str]:
    """Yield the names of the fields that can be absent, but whose type does not contain null."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        if name not in required and not _has_null(field, definitions):
            yield name


def _has_null(schema: Schema, definitions: Mapping[str, Schema]) -> bool:
    schema = _resolve(schema, definitions)
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return any(_has_null(choice, definitions) for choice in choices)
    return schema.get("type", "null") == "null" and None in schema.get("enum", [None]) and "const" not in schema


def _resolve(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    return definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _add_null(field: Schema) -> Schema:
    about = ("title", "description", "default")
    plain = {name: field[name] for name in field if name not in about}
    return {"anyOf": [plain, {"type": "null"}]} | {name: field[name] for name in about if name in field}
