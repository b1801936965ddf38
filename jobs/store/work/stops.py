"""Stops: messages that tell a worker at once that jobs were cancelled or paused of which it has leases.

They are hints, like wake-ups. The answers to the heartbeats, sent every second, decide what happens to a lease.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, cast

from jobs.store import keys
from jobs.store.server.connection import Client, RedisError

log = logging.getLogger(__name__)

#: Seconds between checks of `stopped`, and before reconnecting.
LOOK_SECONDS, AGAIN_SECONDS = 5.0, 1.0


def listen(client: Client, worker: str, heard: Callable[[], None], stopped: Callable[[], bool]) -> None:
    """Call `heard` whenever there may be a stop for the worker, until `stopped`. Blocks; run it in a thread."""
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
            # The first message confirms the subscription. Earlier stops may have been missed.
            if channel.get_message(timeout=LOOK_SECONDS):
                heard()
