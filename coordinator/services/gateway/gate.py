"""Gate of a service: a number of requests pass at once, as many more wait, and others are told to come later."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jobs import errors

#: Seconds after which somebody who was turned away may come again.
_AGAIN_SECONDS = 1


class Gate:
    """Counts requests of one service in one coordinator. For one event loop."""

    def __init__(self) -> None:
        self.active = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, most: int, seconds: float) -> AsyncIterator[None]:
        """Wait for a turn, and hold it until the block ends. OverLimit where as many wait, or after `seconds`."""
        if self.active >= most:
            await self._wait(most, seconds)
        else:
            self.active += 1
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, most: int, seconds: float) -> None:
        if len(self._waiting) >= most:
            raise errors.OverLimit(
                f"{most} requests are being answered and {most} wait; try again later",
                field="model",
                seconds=_AGAIN_SECONDS,
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # it was given the turn at the same moment
            elif turn in self._waiting:  # unless a turn that ended meanwhile has passed it over
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                detail = f"the request waited {seconds:g} s for its turn; try again later"
                raise errors.OverLimit(detail, field="model", seconds=_AGAIN_SECONDS) from None
            raise

    def _pass_on(self) -> None:
        """Give a turn that has ended to whoever waits the longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.active -= 1
