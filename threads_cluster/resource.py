"""Parts of the API that have a path of their own, such as services: calls whose answers are checked, and lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias
from urllib import parse

from threads_cluster import answers
from threads_cluster.errors import BadArgument, UnexpectedAnswer

if TYPE_CHECKING:
    from threads_cluster.artifacts import Artifacts
    from threads_cluster.connection import Connection

Json: TypeAlias = dict[str, Any]
Rows: TypeAlias = list[Json]

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
        answer: Json = self._connection.ask(method, f"{self.path}{below}", **how)
        return answer if shape is None else answers.checked(shape, answer, self._cluster.url)


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


def quoted(name: str, what: str = "id") -> str:
    """Return a name as one step of a path. BadArgument for those that would name another path."""
    if name in ("", ".", ".."):
        raise BadArgument(f"no {what} can be {name!r}" if name else f"the {what} is empty")
    return parse.quote(name, safe="", errors="surrogateescape")
