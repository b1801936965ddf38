"""Base class and helpers for resources of the API: validated calls, paginated lists and polling."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias
from urllib import parse

from threads_cluster.client.suspension import sleep
from threads_cluster.errors import BadArgument, TimedOut, UnexpectedAnswer

if TYPE_CHECKING:
    from threads_cluster.client.artifacts import Artifacts
    from threads_cluster.client.connection import Connection
    from threads_cluster.client.models import Models
    from threads_cluster.client.workflows import Workflows

Json: TypeAlias = dict[str, Any]
Rows: TypeAlias = list[Json]

#: Minimum pause in seconds between two polls.
#: Minimum pause between two polls, as a multiple of the response time.
STEP_SECONDS, _REST = 0.5, 4.0
#: Maximum number of records per page.
_PAGE = 100
#: Maximum number of consecutive empty pages. The server searches thousands of records for each page.
_EMPTY_PAGES = 1000


class Patient(Protocol):
    """Attributes of the class Cluster that resources use."""

    url: str
    patience: float
    wait_patience: float

    @property
    def artifacts(self) -> Artifacts: ...

    @property
    def models(self) -> Models: ...

    @property
    def workflows(self) -> Workflows: ...


class Resource:
    """Resource of the API, such as services. The token of the connection determines the tenant."""

    #: Path of the resource in the API.
    path: ClassVar[str]

    def __init__(self, connection: Connection, cluster: Patient) -> None:
        self._connection = connection
        self._cluster = cluster

    def _ask(self, method: str, below: str, shape: Any, **how: Any) -> Json:
        """Send a request below the resource's path, and return the validated response.

        A `shape` of None skips validation.
        """
        how = {"patience": self._cluster.patience} | how
        answer: Json = self._connection.ask(method, f"{self.path}{below}", shape, **how)
        return answer

    def _read_list(self, field: str, shape: Any, **query: Any) -> Rows:
        """Request the resource's path, and return the list in the field `field` of the response."""
        rows: Rows = self._ask("GET", "", shape, **query)[field]
        return rows


def pages(url: str, ask: Callable[[Any, int], Json], rows: str, most: int | None = None) -> Iterator[Json]:
    """Yield the records of a paginated list. `ask` requests a page by its cursor and its maximum size.

    Raises UnexpectedAnswer if the list never ends.
    """
    left, cursor, empty = most, None, 0
    while left is None or left > 0:
        size = _PAGE if left is None else min(left, _PAGE)
        page = ask(cursor, size)
        yield from page[rows][:size]
        left = None if left is None else left - len(page[rows])
        empty = 0 if page[rows] else empty + 1
        if (cursor and page.get("cursor") == cursor) or empty > _EMPTY_PAGES:
            raise UnexpectedAnswer(url, f"the list of {rows} never ends")
        cursor = page.get("cursor")
        if not cursor:
            return


def polled(
    read: Callable[[], Json], is_done: Callable[[Json], bool], what: str, timeout: float | None
) -> Iterator[Json]:
    """Read a record repeatedly, and yield it each time until `is_done` returns True.

    Raises TimedOut after `timeout` seconds.
    """
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        began = time.monotonic()
        row = read()
        yield row
        if is_done(row):
            return
        pause = max(STEP_SECONDS, _REST * (time.monotonic() - began))
        if until is not None and time.monotonic() + pause > until:
            raise TimedOut(f"{what} is {row['state']} after {timeout:g} seconds; it continues to run")
        sleep(pause)


def quoted(name: str, what: str = "id") -> str:
    """Quote a name for use as one segment of a path. Raises BadArgument for empty names, `.` and `..`."""
    if name in ("", ".", ".."):
        raise BadArgument(f"the {what} cannot be {name!r}" if name else f"the {what} is empty")
    return parse.quote(name, safe="", errors="surrogateescape")
