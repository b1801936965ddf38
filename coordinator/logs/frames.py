"""Stream the live log lines of one unit as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator

from starlette.concurrency import run_in_threadpool

from coordinator.events.event import position
from coordinator.logs.entry import Entry, frame
from coordinator.logs.live import Live, UnitEnd
from jobs.store.work.live_output import BEGINNING

_RETRY, _PING = b"retry: 2000\n\n", b": ping\n\n"


class FollowerProgress:
    """Progress of one follower. Selects the bytes of each entry that are new, and reports missed bytes."""

    def __init__(self, since: str | None) -> None:
        self.place = since or BEGINNING
        self._attempt, self._run = 0, ""
        #: Offset of the first byte of this run that the follower has not received, or None if unknown.
        self._next = None if since else 0

    def frames(self, entries: Iterable[Entry]) -> Iterator[bytes]:
        """Yield the frames of entries that are new to the follower."""
        for entry in entries:
            if entry.position > position(self.place):
                self.place = entry.lines.id
                yield from self._of(entry)

    def _of(self, entry: Entry) -> Iterator[bytes]:
        lines = entry.lines
        if not lines.chunks or (lines.run == self._run and lines.attempt < self._attempt):
            return
        if self._run and (lines.run, lines.attempt) != (self._run, self._attempt):
            self._next = 0
        self._run, self._attempt = lines.run, lines.attempt
        start, seen = lines.chunks[0].offset, self._next
        self._next = max(seen or 0, start + entry.size)
        if seen is not None and start > seen:
            yield frame("dropped", {"bytes": start - seen})
        data = entry.whole if seen is None or start >= seen else entry.beyond(seen)
        if data:
            yield data


async def unit_frames(
    live: Live, job: str, unit: int, tenant: str, until: int, since: str | None
) -> AsyncGenerator[bytes, None]:
    """Yield the recent output of a unit, and then its live output until the unit ends.

    See `Live.listen` for `tenant` and `until`.
    """
    shown = FollowerProgress(since)
    with live.listen(job, unit, tenant, until) as listener:
        yield _RETRY
        for data in shown.frames(await _read_stored(live, job, unit, shown.place)):
            yield data
        while not isinstance(heard := await listener.next(), UnitEnd):
            if not heard:
                yield _PING
            for data in shown.frames(heard):
                yield data
        # The last output may have arrived after the listener was notified of the end.
        for data in shown.frames(await _read_stored(live, job, unit, shown.place)):
            yield data
        yield frame("end", heard.row)


async def _read_stored(live: Live, job: str, unit: int, place: str) -> list[Entry]:
    several = await run_in_threadpool(live.store.live_output.after, job, place)
    return [Entry(lines) for lines in several if lines.unit == unit]
