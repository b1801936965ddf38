"""Library of Redis functions, which consists of the files in `lua/`. Its name contains a digest of its text.

Function names are global on a server. With a digest in the names, libraries of several versions can coexist, and each
process calls the functions of its own version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

Setting: TypeAlias = int | Sequence[str] | Sequence[float]

#: Prefix of the library names.
_PREFIX = "tc_"
#: Number of characters of the digest in a library name.
_DIGEST = 8
#: Glob that matches the names of this project's libraries, but not a name such as tc_tools.
NAMES = _PREFIX + "[0-9a-f]" * _DIGEST
_FOLDER = Path(__file__).resolve().parents[1] / "lua"
#: Lua files whose local names are visible in all files. In the library, each other file is a separate block.
_SHARED = ("library", "clock")


@dataclass(frozen=True)
class Library:
    """Text and name of a function library for FUNCTION LOAD."""

    name: str
    text: str

    def function(self, name: str) -> str:
        """Return the name that a function has on the Redis server."""
        return f"{self.name}_{name}"


def make_library(settings: Mapping[str, Setting], clock: str | None = None) -> Library:
    """Return the function library with `settings` as constants. `clock` is Lua text that replaces clock.lua."""
    constants = ", ".join(f"{name} = {_literal(value)}" for name, value in settings.items())
    return _library(f"local SETTINGS = {{ {constants} }}", clock)


@cache
def _library(constants: str, clock: str | None) -> Library:
    texts = {path.stem: path.read_text() for path in sorted(_FOLDER.glob("*.lua"))}
    texts["clock"] = clock or texts["clock"]
    shared = [texts.pop(name) for name in _SHARED]
    text = "\n".join([constants, *shared, *(f"do\n{block}end" for block in texts.values())])
    name = _PREFIX + hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
    return Library(name=name, text=f"#!lua name={name}\nlocal LIBRARY = '{name}'\n{text}\n")


def _literal(value: Setting) -> str:
    if isinstance(value, int):
        return str(value)
    return "{ " + ", ".join(f"'{item}'" if isinstance(item, str) else f"{item:g}" for item in value) + " }"
