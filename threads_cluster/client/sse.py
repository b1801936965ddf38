"""Server-sent events, read by hand: https://html.spec.whatwg.org/multipage/server-sent-events.html"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from threads_cluster.client.bodies import BadBody

#: Bytes of one message at most.
LARGEST = 1 << 20


@dataclass
class Reader:
    """Turns the bytes of a stream into messages; remembers the last id for a resume."""

    last_id: str = ""
    _id: str = ""
    _data: list[str] = field(default_factory=list)
    _size: int = 0

    def messages(self, chunks: Iterable[bytes]) -> Iterator[str]:
        """The `data` of each complete message; a message cut off by the end of the stream is dropped.

        BadBody when a message has over LARGEST bytes.
        """
        self._data.clear()
        self._id, self._size = self.last_id, 0
        for line in lines(chunks):
            message = self._take(line)
            if message is not None:
                yield message

    def _take(self, line: str) -> str | None:
        if not line:
            message = "\n".join(self._data) if self._data else None
            self._data.clear()
            self.last_id, self._size = self._id, 0
            return message
        self._size = bounded(self._size + len(line))
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id" and value.isascii() and value.isprintable():  # it goes back in a header
            self._id = value
        return None


def bounded(size: int) -> int:
    """The size of what was read of a message. BadBody over LARGEST bytes."""
    if size > LARGEST:
        raise BadBody(f"an event has over {LARGEST >> 20} MiB")
    return size


def lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Complete lines; what is no UTF-8 in them becomes U+FFFD, as the standard has it.

    Not `str.splitlines`: it also cuts at U+2028 and its like, which JSON may hold.
    """
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            yield line.removesuffix(b"\r").decode(errors="replace")
        bounded(len(rest))
