"""Escaping of text for terminals and logs, and handling of output streams that are closed, full or broken."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, TextIO

#: Maximum number of characters of a displayed text.
LONGEST = 2000
#: Pattern of characters to escape. Group 1 matches colors and white space, which stay unchanged.
_CONTROLS = re.compile(r"(\x1b\[[0-9;:]{0,32}m|[ \t\n\r])|[^ -~]")
#: Pattern of an incomplete color sequence at the end of a piece of output.
_BEGUN = re.compile(r"\x1b(\[[0-9;:]{0,32})?\Z")


def visible(text: str, longest: int | None = None) -> str:
    r"""Return the text on one line, with control characters, bidi marks and newlines as escapes such as \\x1b.

    Text longer than `longest` characters is cut, and its full length is appended.
    """
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def visible_everywhere(value: Any) -> Any:
    """Return a JSON value in which every string and key is escaped and cut for display."""
    if isinstance(value, str):
        return visible(value, LONGEST)
    if isinstance(value, Mapping):
        return {visible(name, LONGEST): visible_everywhere(inner) for name, inner in value.items()}
    return [visible_everywhere(item) for item in value] if isinstance(value, list) else value


class Visible:
    """Escapes the output of a program for a terminal, piece by piece. Colors, tabs and line ends stay unchanged."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""

    def add(self, data: bytes) -> bytes:
        """Return the output that can be displayed now. An incomplete color sequence or character waits for the next
        piece.
        """
        text = self._held + self._decoder.decode(data)
        begun = _BEGUN.search(text)
        self._held = text[begun.start() :] if begun else ""
        return self._shown(text[: begun.start()] if begun else text)

    def end(self) -> bytes:
        """Return the output that was held back until now."""
        text, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return self._shown(text)

    def _shown(self, text: str) -> bytes:
        return _CONTROLS.sub(lambda match: match[1] or visible(match[0]), text).encode(errors="backslashreplace")


def prepare() -> None:
    """Make stdout and stderr accept any text. If stderr is closed, replace it by /dev/null.

    Raises OSError if stdout is closed.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - until the end
    if sys.stdout is None:
        raise OSError(9, "stdout is closed")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def discard(stream: TextIO | None) -> None:
    """Redirect a stream to /dev/null, so that the interpreter can flush it at exit without an error."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
        os.close(nowhere)
