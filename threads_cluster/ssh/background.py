"""An event loop beside the command: what it waits for ends with Ctrl-C, and hosts are heard while output is written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

Answer = TypeVar("Answer")
#: Seconds in which what was cancelled ends, and in which all does.
_CANCEL_SECONDS, _END_SECONDS = 3.0, 8.0


class Background:
    """An event loop in a thread of its own, which runs until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ssh", daemon=True)
        self._thread.start()

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancel what runs, then do what is last, and end; within some seconds."""
        self.start(self._end(last))
        self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    def start(self, work: Coroutine[Any, Any, Answer]) -> Any:
        """Begin something; the answer's `result()` waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Answer], seconds: float | None = None) -> Answer:
        """Return what something returns. A Ctrl-C meanwhile cancels it. TimeoutError after `seconds`."""
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
