"""Leaving out of a Lua script what it never names: each call of a script makes all its functions anew."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_NAMES = re.compile(r"local function (\w+)|function ([\w.]+)|local ([\w, ]+)")
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.\w+)?")
_COMMENT = re.compile(r"--.*")
#: Lines at the margin that go on with a statement.
_WITHIN = ("end", "}", ")", "--")


def statements(text: str) -> list[str]:
    """Divide a text: a statement begins at the margin."""
    return list(_statements(text))


def needed(definitions: Sequence[str], used_by: str) -> list[str]:
    """Return those of the statements that a text needs, directly or by others, in their order.

    Those that define nothing are needed. A name within a string counts as a use.
    """
    words = [_words(statement) for statement in definitions]
    names = [_defined(statement) for statement in definitions]
    kept: set[int] = set()
    used, grown = _words(used_by), True
    while grown:
        fresh = {at for at in range(len(definitions)) if at not in kept and (not names[at] or names[at] & used)}
        kept |= fresh
        used = used.union(*(words[at] for at in fresh))
        grown = bool(fresh)
    return [definitions[at] for at in sorted(kept)]


def _statements(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        begins = line and not line[0].isspace() and not line.startswith(_WITHIN)
        if begins and lines:
            yield "\n".join(lines).rstrip()
            lines = []
        if begins or lines:
            lines.append(_COMMENT.sub("", line).rstrip() if line.lstrip().startswith("--") else line)
    if lines:
        yield "\n".join(lines).rstrip()


def _defined(statement: str) -> frozenset[str]:
    """Names that a statement defines, none if it is no definition."""
    match = _NAMES.match(statement)
    names = next(filter(None, match.groups())) if match else ""
    return frozenset(name.strip() for name in names.split(",") if name)


def _words(text: str) -> frozenset[str]:
    """Return the names in a text: T.refusal counts as itself and as T."""
    words = set(_WORD.findall(_COMMENT.sub("", text)))
    return frozenset(words | {word.partition(".")[0] for word in words})
