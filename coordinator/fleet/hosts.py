"""Which worker speaks for a host. Pure: rows of workers in, rows of workers out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]


def speakers(workers: Iterable[Row], fields: tuple[str, ...]) -> dict[tuple[str, ...], Row]:
    """By the values of these fields, such as host and network, the live worker that was heard of last.

    The last, so that a counter of the host never falls when workers come and go.
    """
    live = [worker for worker in workers if worker["live"]]
    oldest_first = sorted(live, key=lambda worker: (-worker["seen_seconds_ago"], worker["id"]))
    return {tuple(str(worker.get(field) or "") for field in fields): worker for worker in oldest_first}
