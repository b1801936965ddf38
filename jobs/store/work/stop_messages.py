"""Stop messages, which tell a worker immediately that jobs with its leases were cancelled or paused."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, cast

from jobs.store import keys
from jobs.store.server.connection import Client, RedisError

log = logging.getLogger(__name__)

#: Interval in seconds at which `stopped` is called.
#: `AGAIN_SECONDS` is the delay in seconds before a new connection to Redis.
POLL_SECONDS, AGAIN_SECONDS = 5.0, 1.0


def listen(client: Client, worker: str, heard: Callable[[], None], stopped: Callable[[], bool]) -> None:
    """Call `heard` whenever the worker may have received a stop message, until `stopped` returns True.

    Blocks; run it in a thread.
    """
    while not stopped():
        try:
            _hear(client, worker, heard, stopped)
        except RedisError as error:
            log.debug("cannot receive stop messages: %s", error)
            time.sleep(AGAIN_SECONDS)


def _hear(client: Client, worker: str, heard: Callable[[], None], stopped: Callable[[], bool]) -> None:
    with cast(Any, client.pubsub)() as channel:
        channel.subscribe(keys.stops(worker))
        while not stopped():
            # The first message confirms the subscription. Earlier stop messages may have been missed.
            if channel.get_message(timeout=POLL_SECONDS):
                heard()
