"""Parts of the API that have a path of their own, such as services: calls whose answers are checked, and lists."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias
from urllib import parse

from threads_cluster.errors import BadArgument, TimedOut, UnexpectedAnswer

if TYPE_CHECKING:
    from threads_cluster.client.artifacts import Artifacts
    from threads_cluster.client.connection import Connection

Json: TypeAlias = dict[str, Any]
Rows: TypeAlias = list[Json]

#: Seconds between two looks at a row, at least, and over the time that an answer took.
STEP_SECONDS, _REST = 0.5, 4.0
#: Rows of one page at most.
_PAGE = 100
#: Pages without a row that may follow each other; each looked through thousands.
_EMPTY_PAGES = 1000


class Patient(Protocol):
    """Cluster, as far as these parts use it."""

    url: str
    patience: float
    wait_patience: float

    @property
    def artifacts(self) -> Artifacts: ...


class Resource:
    """One part of the API, of the tenant whose token the connection has."""

    #: Its path.
    path: ClassVar[str]

    def __init__(self, connection: Connection, cluster: Patient) -> None:
        self._connection = connection
        self._cluster = cluster

    def _ask(self, method: str, below: str, shape: Any, **how: Any) -> Json:
        """Return the answer to a request below the path, once it is as the shape says; None: any will do."""
        how = {"patience": self._cluster.patience} | how
        answer: Json = self._connection.ask(method, f"{self.path}{below}", shape, **how)
        return answer

    def _read_list(self, field: str, shape: Any, **query: Any) -> Rows:
        """Return a field of the answer to a request of the path itself: the list that this part is."""
        rows: Rows = self._ask("GET", "", shape, **query)[field]
        return rows


def pages(url: str, ask: Callable[[Any, int], Json], rows: str, most: int | None = None) -> Iterator[Json]:
    """Yield the rows of a list page by page; `ask` returns one, given its cursor and the most rows that it may have.

    UnexpectedAnswer for a list that never ends.
    """
    left, cursor, empty = most, None, 0
    while left is None or left > 0:
        size = _PAGE if left is None else min(left, _PAGE)
        page = ask(cursor, size)
        yield from page[rows][:size]
        left = None if left is None else left - len(page[rows])
        empty = 0 if page[rows] else empty + 1
        if (cursor and page.get("cursor") == cursor) or empty > _EMPTY_PAGES:
            raise UnexpectedAnswer(url, f"its list of {rows} never ends")
        cursor = page.get("cursor")
        if not cursor:
            return


def polled(
    read: Callable[[], Json], is_done: Callable[[Json], bool], what: str, timeout: float | None
) -> Iterator[Json]:
    """Yield a row as it is, again and again until it is done; TimedOut after `timeout` seconds."""
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        began = time.monotonic()
        row = read()
        yield row
        if is_done(row):
            return
        pause = max(STEP_SECONDS, _REST * (time.monotonic() - began))
        if until is not None and time.monotonic() + pause > until:
            raise TimedOut(f"{what} is {row['state']} after {timeout:g} seconds; it goes on")
        time.sleep(pause)


def quoted(name: str, what: str = "id") -> str:
    """Return a name as one step of a path. BadArgument for those that would name another path."""
    if name in ("", ".", ".."):
        raise BadArgument(f"no {what} can be {name!r}" if name else f"the {what} is empty")
    return parse.quote(name, safe="", errors="surrogateescape")
