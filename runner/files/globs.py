"""Globs of outputs: * and ? stay within one name, ** does not; a folder stands for all below it.

Matching takes a time that grows with the path and the glob alone. A pattern of `re` may take years, in which no other
thread runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

_PIECES = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^]/]*\]|.", re.DOTALL)
#: Pieces that stand for any number of characters, of all sorts and within a name; and one before `**/`, which may be
#: left out: it leads to the next piece and behind the slash.
_ANY, _NAME, _SKIP = "**", "*", "skip"


@lru_cache(maxsize=256)
def pattern(glob: str) -> Glob:
    """Return what a glob matches."""
    return Glob(glob)


class Glob:
    """Glob as a machine whose state has a bit for each piece that may come next."""

    def __init__(self, glob: str) -> None:
        self._pieces = list(_pieces(glob.removeprefix("./").rstrip("/")))
        self._end = 1 << len(self._pieces)
        self._any, self._name, self._skip = (self._find_pieces(sort) for sort in (_ANY, _NAME, _SKIP))
        #: Pieces that stand for one such character.
        self._fitting: dict[str, int] = {}

    def fullmatch(self, path: str) -> bool:
        """Return True for a path that the glob names, and for what is below one."""
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
        """Return a state with the pieces that may come next instead of those that may stand for nothing."""
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
    """Yield the pieces of a glob, of those that stand for any number of characters one where several follow."""
    for piece, several in groupby(match[0] for match in _PIECES.finditer(glob)):
        if piece == "**/":
            yield from (_SKIP, _ANY, "/")
        elif piece in (_ANY, _NAME):
            yield piece
        else:
            for _ in several:
                yield from piece if piece == "[]" else [piece]


def _fits(piece: str, character: str) -> bool:
    """Return True for a piece that stands for one such character."""
    if piece in (_ANY, _NAME, _SKIP):
        return False
    if piece == "?":
        return character != "/"
    return _is_in(piece[1:-1], character) if len(piece) > 1 else piece == character


def _is_in(inside: str, character: str) -> bool:
    """Return True for a character that is in the brackets with this inside, and no slash."""
    is_not = inside.startswith("!")
    at, found = int(is_not), False
    while at < len(inside):
        last = at + 2 if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside) else at
        found |= inside[at] <= character <= inside[last]
        at = last + 1
    return found != is_not and character != "/"
