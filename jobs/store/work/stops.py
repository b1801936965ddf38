"""Stops: what tells a worker at once that jobs were cancelled or paused of which it has leases.

A hint, as a bell is: BEAT alone says what is to become of a lease, and each second it is asked anyway.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, cast

from jobs.store import keys
from jobs.store.server.connection import Client, RedisError

log = logging.getLogger(__name__)

#: Seconds between two looks whether to end, and before another try to listen.
LOOK_SECONDS, AGAIN_SECONDS = 5.0, 1.0


def listen(client: Client, worker: str, heard: Callable[[], None], stopped: Callable[[], bool]) -> None:
    """Call `heard` whenever there may be a stop for the worker, until `stopped`. Blocks; for a thread of its own."""
    while not stopped():
        try:
            _hear(client, worker, heard, stopped)
        except RedisError as error:
            log.debug("stops are not heard: %s", error)
            time.sleep(AGAIN_SECONDS)


def _hear(client: Client, worker: str, heard: Callable[[], None], stopped: Callable[[], bool]) -> None:
    with cast(Any, client.pubsub)() as channel:
        channel.subscribe(keys.stops(worker))
        while not stopped():
            # The first message says that the worker listens from now on: what came before was not heard.
            if channel.get_message(timeout=LOOK_SECONDS):
                heard()
