"""Globs for output files. `*` and `?` match within one name, and `**` also matches slashes.

A glob that matches a folder matches all files in it. The matching time is bounded by the lengths of the path and the
glob. A pattern of `re` can take exponential time, and blocks all other threads meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

_PIECES = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^]/]*\]|.", re.DOTALL)
#: Pieces of a glob: `**` matches any characters, and `*` matches any characters except slashes.
#: The piece `skip` represents the prefix `**/`, which can also match nothing.
_ANY, _NAME, _SKIP = "**", "*", "skip"


@lru_cache(maxsize=256)
def pattern(glob: str) -> Glob:
    """Return the compiled glob. Recent globs come from a cache."""
    return Glob(glob)


class Glob:
    """Compiled glob: a state machine with one bit for each piece of the glob that can match next."""

    def __init__(self, glob: str) -> None:
        self._pieces = list(_pieces(glob.removeprefix("./").rstrip("/")))
        self._end = 1 << len(self._pieces)
        self._any, self._name, self._skip = (self._find_pieces(sort) for sort in (_ANY, _NAME, _SKIP))
        #: Cache of the pieces that match a character, keyed by the character.
        self._fitting: dict[str, int] = {}

    def fullmatch(self, path: str) -> bool:
        """Return True if the glob matches a path or one of its parent folders."""
        state = self._expand_stars(1)
        for character in path:
            if character == "/" and state & self._end:
                return True
            again = self._any if character == "/" else self._any | self._name
            state = self._expand_stars((state & self._fits(character)) << 1 | state & again)
            if not state:
                return False
        return bool(state & self._end)

    def _find_pieces(self, sort: str) -> int:
        return sum(1 << at for at, piece in enumerate(self._pieces) if piece == sort)

    def _expand_stars(self, state: int) -> int:
        """Add the states that follow when wildcards match zero characters."""
        before = -1
        while state != before:
            before, skipped = state, state & self._skip
            state |= (state & (self._any | self._name)) << 1 | skipped << 1 | skipped << 3
        return state

    def _fits(self, character: str) -> int:
        if character not in self._fitting:
            ones = (1 << at for at, piece in enumerate(self._pieces) if _fits(piece, character))
            self._fitting[character] = sum(ones)
        return self._fitting[character]


def _pieces(glob: str) -> Iterator[str]:
    """Yield the pieces of a glob. Repeated `*` and repeated `**` are merged."""
    for piece, several in groupby(match[0] for match in _PIECES.finditer(glob)):
        if piece == "**/":
            yield from (_SKIP, _ANY, "/")
        elif piece in (_ANY, _NAME):
            yield piece
        else:
            for _ in several:
                yield from piece if piece == "[]" else [piece]


def _fits(piece: str, character: str) -> bool:
    """Return True if a piece of a glob matches one character."""
    if piece in (_ANY, _NAME, _SKIP):
        return False
    if piece == "?":
        return character != "/"
    return _is_in(piece[1:-1], character) if len(piece) > 1 else piece == character


def _is_in(inside: str, character: str) -> bool:
    """Return True if a bracket expression contains the character. Slashes never match."""
    is_not = inside.startswith("!")
    at, found = int(is_not), False
    while at < len(inside):
        last = at + 2 if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside) else at
        found |= inside[at] <= character <= inside[last]
        at = last + 1
    return found != is_not and character != "/"
