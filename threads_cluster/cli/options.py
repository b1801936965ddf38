"""Command-line options that are generated from a kind's JSON Schema, and exact parsing of their values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from threads_cluster.client import bodies
from threads_protocol import numbers

Schema: TypeAlias = Mapping[str, Any]

#: Maximum number of alternatives in the schema of a parameter.
_BRANCHES = 1000
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
#: Suffix in the help text of an option that accepts several values, separated by commas.
_MORE = "[,...]"
_INTEGER = re.compile(
    r"(?P<whole>[+-]?[0-9][0-9_]*)"
    r"(?:(?:(?P<ten>[eE])(?P<zeros>[0-9]+)|(?:\^|\*\*)(?P<power>[0-9]+))(?P<more>[+-][0-9]{1,18})?)?"
)


class BadValue(ValueError):
    """The text is not a valid value of an option. The message contains the valid values."""


@dataclass(frozen=True)
class Flag:
    """Command-line option for one parameter of a kind."""

    name: str
    schema: Schema
    #: Alternatives in the parameter's schema, with resolved references and without null.
    options: tuple[Schema, ...]
    nullable: bool
    required: bool

    @property
    def option(self) -> str:
        return option_name(self.name)

    @property
    def is_switch(self) -> bool:
        return [option.get("type") for option in self.options] == ["boolean"]

    def label(self) -> str:
        """Return the placeholder for the option's value in the help text."""
        labels = list(dict.fromkeys(_label(option) for option in self.options))
        return "|".join(label for label in labels if label + _MORE not in labels) or "VALUE"

    def help(self) -> str:
        """Return the option's description, unit, default and bounds on one line."""
        facts = ["required"] if self.required else self._default()
        facts += [*self._bounds(), *self._shapes()]
        said = str(self.schema.get("description", "")).strip()
        unit = self.schema.get("unit")
        said = f"{said} ({unit})" if unit else said
        return f"{said}  [{'; '.join(facts)}]".strip() if facts else said

    def read(self, text: str) -> Any:
        """Parse a text into the value of the parameter. Raises BadValue if it is invalid."""
        if text == "null" and self.nullable:
            return None
        return _read(text, self.options)

    def _default(self) -> list[str]:
        default = self.schema.get("default")
        if default is None or self.is_switch:
            return []
        return [f"default: {default if isinstance(default, str) else json.dumps(default)}"]

    def _shapes(self) -> list[str]:
        """Return the fields of the schema's alternatives that are JSON objects."""
        shapes = [_shape(option) for option in self.options if option.get("properties")]
        return [" or ".join(shapes)] if shapes else []

    def _bounds(self) -> list[str]:
        inner = (each for option in self.options for each in option.get("options", ()))
        for schema in (self.schema, *self.options, *inner):
            low = schema.get("minimum", schema.get("exclusiveMinimum"))
            high = schema.get("maximum", schema.get("exclusiveMaximum"))
            if low is not None or high is not None:
                return [_range(low, high)]
        return []


def _shape(option: Schema) -> str:
    """Return the fields of a JSON object as text, such as {distribution: fixed, children}."""
    properties = option.get("properties", {})
    fields = (f"{name}: {inner['const']}" if "const" in inner else name for name, inner in properties.items())
    return "{" + ", ".join(fields) + "}"


def option_name(parameter: str) -> str:
    """Convert the name of a parameter to an option. For example, `number_count` becomes `--number-count`."""
    return "--" + parameter.replace("_", "-")


def flags(schema: Schema) -> list[Flag]:
    """Return an option for each property of a schema, in the same order."""
    required = set(schema.get("required", ()))
    return [_flag(name, node, schema, name in required) for name, node in schema.get("properties", {}).items()]


def _flag(name: str, node: Schema, root: Schema, required: bool) -> Flag:
    schemas = tuple(_alternatives(node, root, iter(range(_BRANCHES))))
    options = tuple(option for option in schemas if option.get("type") != "null")
    said = next((option["description"] for option in (node, *options) if option.get("description")), "")
    return Flag(name, {**node, "description": said}, options, len(options) < len(schemas), required)


def _alternatives(node: Schema, root: Schema, left: Iterator[int]) -> Iterator[Schema]:
    """Yield the alternatives of a schema, with resolved references and with bounds.

    Raises ValueError if there are more alternatives than `left`.
    """
    if next(left, None) is None:
        raise ValueError("the schema has too many alternatives")
    if "$ref" in node:
        step: Any = root
        for part in str(node["$ref"]).removeprefix("#/").split("/"):
            step = step[part]
        yield from _alternatives(step, root, left)
        return
    inner = [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())]
    bounds = {name: node[name] for name in _BOUNDS if name in node}
    for option in inner:
        yield from ({**bounds, **inner} for inner in _alternatives(option, root, left))
    if not inner:
        items = node.get("items")
        yield {**node, "options": tuple(_alternatives(items, root, left))} if items else node


def _label(option: Schema) -> str:
    if "enum" in option or "const" in option:
        return "|".join(map(str, _choices(option)))
    kind = option.get("type")
    if kind == "array":
        inner = "|".join(dict.fromkeys(_label(each) for each in option.get("options", ()))) or "VALUE"
        return inner + _MORE
    if _is_digits(option):
        return "INTEGER"
    return {"integer": "INTEGER", "number": "NUMBER", "object": "JSON", "boolean": "true|false"}.get(str(kind), "TEXT")


def _describe(option: Schema) -> str:
    if "enum" in option or "const" in option:
        return f"one of {', '.join(map(str, _choices(option)))}"
    words = {"integer": "an integer", "number": "a number", "object": "a JSON object", "boolean": "true or false"}
    if option.get("type") == "array":
        return "a list separated by commas"
    return words["integer"] if _is_digits(option) else words.get(str(option.get("type")), "text")


def _is_digits(option: Schema) -> bool:
    """Return True if a schema describes an integer as a decimal string, so that it can exceed 2^53."""
    return option.get("type") == "string" and str(option.get("pattern")).startswith(("^[0-9]", "^-?[0-9]"))


def _choices(option: Schema) -> list[Any]:
    return list(option["enum"]) if "enum" in option else [option["const"]]


def _read(text: str, options: tuple[Schema, ...]) -> Any:
    if text[:1] in ("{", "[") and any(option.get("type") in ("object", "array") for option in options):
        return parse_json(text)
    lists = [option for option in options if option.get("type") == "array"]
    if lists and ("," in text or len(lists) == len(options)):
        parts = [part.strip() for part in text.split(",")]
        if "" in parts:
            raise BadValue(f"item {parts.index('') + 1} is empty; got {numbers.short(text)}")
        return [_read(part, lists[0].get("options", ())) for part in parts]
    return _scalar(text.strip(), options)


def _scalar(text: str, options: tuple[Schema, ...]) -> Any:
    choices = [choice for option in options if "enum" in option or "const" in option for choice in _choices(option)]
    for choice in choices:
        if str(choice) == text:
            return choice
    types = {"integer" if _is_digits(option) else option.get("type") for option in options}
    if types & {"integer", "number"}:
        number = integer(text) if "number" not in types else decimal(text)
        if number is not None:
            return number
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if ("string" in types and not choices) or types in (set(), {None}):
        return text
    wanted = " or ".join(dict.fromkeys(map(_describe, options)))
    raise BadValue(f"must be {wanted}; got {numbers.short(text)}")


def integer(text: str) -> int | str | None:
    """Parse an exact integer such as 27, 1_000_000, 1e12, 2^70 or 2**70-1. Return None for any other text."""
    match = _INTEGER.fullmatch(text)
    if not match:
        return None
    return numbers.exact(_power(match) + int(match["more"] or 0))


def _power(match: re.Match[str]) -> int:
    digits, zeros, power = match["whole"].replace("_", ""), int(match["zeros"] or 0), int(match["power"] or 1)
    size = len(digits) + zeros if match["ten"] else len(digits) * max(power, 1)
    if size > numbers.MAX_DIGITS:
        raise BadValue(f"has more than {numbers.MAX_DIGITS} digits")
    number: int = int(digits) * 10**zeros if match["ten"] else int(digits) ** power
    return number


def decimal(text: str) -> int | float | str | None:
    """Parse an integer exactly, and any other number as a float. Return None if the text is not a number."""
    whole = integer(text)
    if whole is not None:
        return whole
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def parse_json(text: str) -> Any:
    """Parse JSON without losing digits of integers."""
    try:
        return bodies.parse(text, lambda digits: numbers.exact(int(digits)))
    except bodies.BadBody as error:
        raise BadValue(f"is {error}") from None


def _range(low: Any, high: Any) -> str:
    if high is None:
        return f"at least {_bound(low)}"
    return f"at most {_bound(high)}" if low is None else f"{_bound(low)}..{_bound(high)}"


def _bound(value: Any) -> str:
    """Format a bound for the help text. A large bound becomes short, such as 2^96."""
    if isinstance(value, int) and abs(value) > 10**6:
        for near, tail in ((value, ""), (value + 1, "-1")):
            if near > 0 and near & (near - 1) == 0:
                return f"2^{near.bit_length() - 1}{tail}"
        text = str(value)
        zeros = len(text) - len(text.rstrip("0"))
        return f"{text[:-zeros]}e{zeros}" if zeros > 5 else (text if len(text) < 24 else f"about 1e{len(text) - 1}")
    return str(value)
