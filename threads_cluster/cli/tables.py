"""Search for tables in a result by their shape, so that this module needs no code for each kind."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from threads_cluster.terminal import visible

#: Maximum number of cells in a table. Rows without common columns could need more cells than there are values.
LARGEST = 10_000_000
#: Maximum length of a list of scalars that is printed as one value. A longer list is a table.
SHORT = 8
#: Names of columns for lists of pairs, keyed by the name of the list.
_PAIRS = {"bins": ("index", "count"), "histogram": ("value", "count"), "curve": ("step", "log2")}


@dataclass(frozen=True)
class Table:
    """Table in a result, with its dotted path."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


def find(value: Any, path: tuple[str, ...] = ()) -> Iterator[Table]:
    """Yield every table in a result. A table precedes the tables in its cells."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from find(inner, (*path, name))
    elif isinstance(value, list) and value:
        table = _as_table(value, path)
        if table:
            yield table
        if all(isinstance(row, Mapping) for row in value):
            for number, row in enumerate(value):
                yield from find(row, (*path, str(number)))


def select(result: Any, name: str | None) -> tuple[Table, list[str]]:
    """Return the table with this name, or the first table, and the names of the others. Raises LookupError."""
    by_name = {table.name: table for table in find(result)}
    if not by_name:
        by_name = {"result": scalars(result)}
    if name is not None and name not in by_name:
        raise LookupError(f"table {name} does not exist; this result has {', '.join(by_name)}")
    table = by_name[name] if name is not None else next(iter(by_name.values()))
    return table, [other for other in by_name if other != table.name]


def scalars(value: Any) -> Table:
    """Return all values outside of tables, as a table with dotted names and values."""
    return Table("result", ("name", "value"), list(_flatten(value)))


def to_csv(table: Table) -> str:
    """Format a table as CSV (RFC 4180) with exact digits. Control characters are escaped, so a row is one line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(visible, table.columns))
    writer.writerows([visible(cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows)
    return out.getvalue()


def _as_table(rows: list[Any], path: tuple[str, ...]) -> Table | None:
    name = ".".join(path)
    if all(isinstance(row, Mapping) for row in rows):
        flat = [dict(_flatten(row)) for row in rows]
        columns = tuple(dict.fromkeys(column for row in flat for column in row))
        if len(columns) * len(flat) > LARGEST:
            return None
        return Table(name, columns, [[row.get(column, "") for column in columns] for row in flat])
    if all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows) and len(rows[0]) > 1:
        return Table(name, _columns(path, len(rows[0])), rows)
    if len(rows) > SHORT and not any(isinstance(row, list | Mapping) for row in rows):
        return Table(name, ("index", path[-1] if path else "value"), list(enumerate(rows)))
    return None


def _columns(path: tuple[str, ...], width: int) -> tuple[str, ...]:
    """Return the names of the columns of a table of lists, for example delay and count for delay.histogram."""
    if width == 2 and path and path[-1] in _PAIRS:
        first, second = _PAIRS[path[-1]]
        return (path[-2] if path[-1] == "histogram" and len(path) > 1 else first, second)
    return tuple(f"column{number}" for number in range(1, width + 1))


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield scalars with their dotted names. A short list counts as a scalar, and tables are skipped."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flatten(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        if len(value) <= SHORT and not any(isinstance(item, list | Mapping) for item in value):
            yield path, " ".join(map(str, value))
    else:
        yield path, "" if value is None else value
