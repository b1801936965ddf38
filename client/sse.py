"""Server-sent events, read by hand: https://html.spec.whatwg.org/multipage/server-sent-events.html"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass
class Reader:
    """Turns the bytes of a stream into messages; remembers the last id for a resume."""

    last_id: str = ""
    _id: str = ""
    _data: list[str] = field(default_factory=list)

    def messages(self, chunks: Iterable[bytes]) -> Iterator[str]:
        """The `data` of each complete message; a message cut off by the end of the stream is dropped."""
        self._data.clear()
        self._id = self.last_id
        for line in lines(chunks):
            message = self._take(line)
            if message is not None:
                yield message

    def _take(self, line: str) -> str | None:
        if not line:
            message = "\n".join(self._data) if self._data else None
            self._data.clear()
            self.last_id = self._id
            return message
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        return None


def lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Complete lines; what is no UTF-8 in them becomes U+FFFD, as the standard has it.

    Not `str.splitlines`: it also cuts at U+2028 and its like, which JSON may hold.
    """
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            yield line.removesuffix(b"\r").decode(errors="replace")
