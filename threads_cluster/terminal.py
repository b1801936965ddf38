"""Text that may reach a terminal or a log, and streams that may be closed, full or gone."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, TextIO

#: Characters of one text that people see.
LONGEST = 2000
#: What a terminal may obey in the output of a program, else a character that it might.
_CONTROLS = re.compile(r"(\x1b\[[0-9;:]{0,32}m|[ \t\n\r])|[^ -~]")
#: The beginning of a colour, whose end may come.
_BEGUN = re.compile(r"\x1b(\[[0-9;:]{0,32})?\Z")


def visible(text: str, longest: int | None = None) -> str:
    """The text on one line, with escapes such as \\x1b for what a terminal would obey: controls, bidi marks, newlines.

    Beyond `longest` characters it is cut, and says so.
    """
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def visible_everywhere(value: Any) -> Any:
    """The JSON value with every text and name in it visible and cut."""
    if isinstance(value, str):
        return visible(value, LONGEST)
    if isinstance(value, Mapping):
        return {visible(name, LONGEST): visible_everywhere(inner) for name, inner in value.items()}
    return [visible_everywhere(item) for item in value] if isinstance(value, list) else value


class Visible:
    """Output of a program in pieces, for a terminal: colours, tabs and line ends stay, other controls are escaped."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""

    def add(self, data: bytes) -> bytes:
        """Return what can be shown of the output so far and was not."""
        text = self._held + self._decoder.decode(data)
        begun = _BEGUN.search(text)
        self._held = text[begun.start() :] if begun else ""
        return self._shown(text[: begun.start()] if begun else text)

    def end(self) -> bytes:
        """Return what is left."""
        text, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return self._shown(text)

    def _shown(self, text: str) -> bytes:
        return _CONTROLS.sub(lambda match: match[1] or visible(match[0]), text).encode(errors="backslashreplace")


def prepare() -> None:
    """Makes both streams take any text. OSError when stdout is closed; a closed stderr is as good as /dev/null."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - until the end
    if sys.stdout is None:
        raise OSError(9, "stdout is closed")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def discard(stream: TextIO | None) -> None:
    """Sends what the stream still holds to nowhere, so that the interpreter's last flush cannot fail."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
        os.close(nowhere)
