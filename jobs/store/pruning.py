"""Leaving out of a Lua script what it never names: each call of a script makes all its functions anew."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_NAMES = re.compile(r"local function (\w+)|function ([\w.]+)|local ([\w, ]+)")
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.\w+)?")
_COMMENT = re.compile(r"--.*")
#: Lines at the margin that go on with a statement.
_WITHIN = ("end", "}", ")", "--")


class Statement:
    """Part of a Lua text: what it defines, none if it is no definition, and the names that it uses."""

    def __init__(self, text: str) -> None:
        self.text = text
        match = _NAMES.match(text)
        names = next(filter(None, match.groups())) if match else ""
        self.defines = frozenset(name.strip() for name in names.split(",") if name)
        self.uses = words(text)


def statements(text: str) -> list[Statement]:
    """Divide a text: a statement begins at the margin."""
    return [Statement(lines) for lines in _statements(text)]


def words(text: str) -> frozenset[str]:
    """Return the names in a text: T.refusal counts as itself and as T. A name within a string counts too."""
    spelled = set(_WORD.findall(_COMMENT.sub("", text)))
    return frozenset(spelled | {word.partition(".")[0] for word in spelled})


def needed(definitions: Iterable[Statement], used: frozenset[str]) -> frozenset[Statement]:
    """Return those of the statements that these names need, directly or by others, and those that define nothing."""
    left, kept = set(definitions), set[Statement]()
    while fresh := {one for one in left if not one.defines or one.defines & used}:
        kept |= fresh
        left -= fresh
        used = used.union(*(one.uses for one in fresh))
    return frozenset(kept)


def _statements(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        begins = line and not line[0].isspace() and not line.startswith(_WITHIN)
        if begins and lines:
            yield "\n".join(lines).rstrip()
            lines = []
        if begins or lines:
            lines.append("" if line.lstrip().startswith("--") else line)
    if lines:
        yield "\n".join(lines).rstrip()
