"""Probe the addresses of replicas, to report replicas that this coordinator cannot reach."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from contextlib import suppress
from typing import TypeAlias

#: Seconds for which the result of a probe is valid.
#: Maximum seconds to wait for new probes.
#: Connect timeout of a probe in seconds.
FRESH_SECONDS, WAIT_SECONDS, CONNECT_SECONDS = 5.0, 1.0, 3.0
#: Maximum number of concurrent probes.
AT_ONCE = 32

Place: TypeAlias = tuple[str, int]


class Probes:
    """Connects to addresses and caches the outcomes. Use it from one event loop."""

    def __init__(self) -> None:
        self._known: dict[Place, tuple[float, str]] = {}
        self._looking: dict[Place, asyncio.Task[None]] = {}

    async def failures(self, places: Collection[Place]) -> dict[Place, str]:
        """Return the errors of failed probes, by address.

        If a probe is slow, the outcome of the previous probe is used.
        """
        now = time.monotonic()
        self._known = {place: seen for place, seen in self._known.items() if seen[0] > now - 60 or place in places}
        self._looking = {place: task for place, task in self._looking.items() if not task.done()}
        for place in places:
            old = place not in self._known or self._known[place][0] < now - FRESH_SECONDS
            if old and place not in self._looking and len(self._looking) < AT_ONCE:
                self._looking[place] = asyncio.create_task(self._look(place))
        if waited := [task for place, task in self._looking.items() if place in places]:
            await asyncio.wait(waited, timeout=WAIT_SECONDS)
        return {place: self._known[place][1] for place in places if self._known.get(place, (0.0, ""))[1]}

    async def _look(self, place: Place) -> None:
        why = ""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(*place)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        except TimeoutError:
            why = f"no response within {CONNECT_SECONDS:g} s"
        except OSError as error:
            why = error.strerror or type(error).__name__
        self._known[place] = time.monotonic(), why

    async def close(self) -> None:
        """Cancel running probes."""
        for task in self._looking.values():
            task.cancel()
        await asyncio.gather(*self._looking.values(), return_exceptions=True)
