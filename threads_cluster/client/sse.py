"""Parser of server-sent events. See https://html.spec.whatwg.org/multipage/server-sent-events.html"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from threads_cluster.client.bodies import BadBody

#: Maximum size in characters of one message.
LARGEST = 1 << 20


@dataclass
class Reader:
    """Parser that converts the bytes of a stream to messages. It stores the last event ID for resuming."""

    last_id: str = ""
    _id: str = ""
    _data: list[str] = field(default_factory=list)
    _size: int = 0

    def messages(self, chunks: Iterable[bytes]) -> Iterator[str]:
        """Yield the `data` of each complete message. An incomplete message at the end is dropped.

        Raises BadBody if a message is larger than LARGEST.
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
        elif name == "id" and value.isascii() and value.isprintable():  # The client sends the ID back in a header
            self._id = value
        return None


def bounded(size: int) -> int:
    """Return the size if it is at most LARGEST. Otherwise, raise BadBody."""
    if size > LARGEST:
        raise BadBody(f"an event is larger than {LARGEST >> 20} MiB")
    return size


def lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield the complete lines of a stream. Invalid UTF-8 becomes U+FFFD, as the standard requires.

    `str.splitlines` would also split at U+2028 and similar characters, which JSON can contain.
    """
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            yield line.removesuffix(b"\r").decode(errors="replace")
        bounded(len(rest))
