"""Limit the memory of a coordinator for large requests and responses, in total and per tenant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from coordinator.server.bodies import BodyMemory
from jobs import errors

#: Maximum size in bytes of a body that needs no reservation, because a request's overhead is larger.
SMALL = 1 << 16
#: Seconds after which a rejected client can retry.
_AGAIN_SECONDS = 5


class Shares:
    """Memory budgets in bytes, in total and per tenant. Use them from one event loop."""

    def __init__(self, together: int, each: int) -> None:
        self._together, self._each = BodyMemory(together), each
        self._tenants: dict[str, BodyMemory] = {}

    @asynccontextmanager
    async def room(self, tenant: str, size: int, seconds: float) -> AsyncIterator[None]:
        """Reserve `size` bytes during the block. Raises OverLimit after `seconds`."""
        async with AsyncExitStack() as held:
            if size > SMALL:
                await self._enter(held, tenant, size, seconds)
            yield

    async def _enter(self, held: AsyncExitStack, tenant: str, size: int, seconds: float) -> None:
        own = self._tenants.setdefault(tenant, BodyMemory(self._each))
        try:
            async with asyncio.timeout(seconds):
                await held.enter_async_context(own.reserve(size))
                await held.enter_async_context(self._together.reserve(size))
        except TimeoutError:
            detail = f"large requests and responses use all available memory, up to {self._each >> 20} MiB per tenant"
            raise errors.OverLimit(f"{detail}; try again later", field="body", seconds=_AGAIN_SECONDS) from None
