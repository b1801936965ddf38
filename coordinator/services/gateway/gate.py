"""Limit the concurrent requests of one service. Excess requests wait in a bounded queue or are rejected."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jobs import errors

#: Seconds after which a rejected client can retry.
_AGAIN_SECONDS = 1


class Gate:
    """Concurrency limit of one service in one coordinator. Use it from one event loop."""

    def __init__(self) -> None:
        self.active = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """Return the number of waiting requests."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, most: int, seconds: float) -> AsyncIterator[None]:
        """Hold a permit during the block. Raises OverLimit if the queue is full, or after `seconds`."""
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
                f"{most} requests are running and {most} are waiting; try again later",
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
                self._pass_on()  # a permit was granted at the same time
            elif turn in self._waiting:  # the release of a permit may have removed the request already
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                detail = f"the request waited {seconds:g} s in the queue; try again later"
                raise errors.OverLimit(detail, field="model", seconds=_AGAIN_SECONDS) from None
            raise

    def _pass_on(self) -> None:
        """Give a released permit to the request that has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.active -= 1
