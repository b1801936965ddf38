"""Command arguments: texts in which placeholders such as {unit} are replaced, and literals, which stay unchanged.

A literal is written `{"literal": TEXT}`. Workflows and engines use literals for values that users supply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

#: Command argument: a text with placeholders, or a literal.
Argument: TypeAlias = str | dict[str, str]
#: Name of the JSON field that marks an argument as a literal.
LITERAL = "literal"
#: JSON Schema of a command argument.
SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {LITERAL: {"type": "string"}},
            "required": [LITERAL],
            "additionalProperties": False,
        },
    ]
}
#: Pattern of the placeholders that are replaced in arguments of programs.
_PLACEHOLDERS = re.compile(r"\{(?:unit|item|port|address|python)\}")
#: Pattern of unknown placeholders: braces around a name, a number or characters of GNU parallel, such as {} or {.}.
#: The pattern also matches text that starts like a placeholder, such as {item['a']}.
#: The pattern does not match shell variables (${NAME}), {{...}} or JSON.
_UNKNOWN = re.compile(r"(?<![${])\{(?!unit\}|item\})(?:[\w./#%:+\[\]-]*|\s*(?:unit|item)\b[^{}]*)\}(?!\})")


def literal(text: str) -> Argument:
    """Return an argument that passes this exact text to a program."""
    return {LITERAL: text} if _PLACEHOLDERS.search(text) or _UNKNOWN.search(text) else text


def is_literal(value: Any) -> bool:
    """Return True if the argument is written as a literal."""
    return isinstance(value, dict) and list(value) == [LITERAL]


def text_of(argument: Argument) -> str:
    """Return the text of an argument, including its placeholders."""
    return argument if isinstance(argument, str) else argument[LITERAL]


def uses(command: Sequence[Argument] | str, placeholder: str) -> bool:
    """Return True if the command contains the placeholder outside of literals."""
    if isinstance(command, str):
        return placeholder in command
    return any(isinstance(each, str) and placeholder in each for each in command)


def unknown_placeholder(command: Sequence[Argument]) -> str:
    """Return the first unknown placeholder outside of literals, or an empty string."""
    found = (_UNKNOWN.search(each) for each in command if isinstance(each, str))
    return next((match[0] for match in found if match), "")


def fill(argument: Argument, values: Mapping[str, str]) -> str:
    """Return the argument with each placeholder replaced once; placeholders inside inserted values are not replaced."""
    if not isinstance(argument, str):
        return argument[LITERAL]
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], argument)
