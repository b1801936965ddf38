"""Event loop in a background thread. Ctrl-C can cancel its work, and SSH connections stay alive meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

Answer = TypeVar("Answer")
#: Timeouts in seconds for cancelling tasks and for closing the event loop.
_CANCEL_SECONDS, _END_SECONDS = 3.0, 8.0


class Background:
    """Event loop that runs in its own thread until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ssh", daemon=True)
        self._thread.start()

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancel all running tasks, run `last`, and stop the event loop. This takes at most a few seconds."""
        self.start(self._end(last))
        self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    def start(self, work: Coroutine[Any, Any, Answer]) -> Any:
        """Start a coroutine in the event loop, and return a future for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Answer], seconds: float | None = None) -> Answer:
        """Run a coroutine in the event loop and return its result. Ctrl-C cancels it. Raises TimeoutError after
        `seconds`.
        """
        future = self.start(work)
        try:
            answer: Answer = future.result(seconds)
        except CancelledError:
            raise KeyboardInterrupt from None
        except BaseException:
            future.cancel()
            raise
        return answer

    async def _end(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=_CANCEL_SECONDS)
            await last
            await self._loop.shutdown_asyncgens()
        finally:
            self._loop.stop()
