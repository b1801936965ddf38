"""A function of Redis that does not end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import redis

from tests.integration.live import until

ENDLESS = "#!lua name=endless\nredis.register_function('endless', function() while true do end end)"
#: Milliseconds after which Redis answers other callers that it is busy.
BUSY_AFTER_MS, BUSY_BY_DEFAULT_MS = 100, 5000


@contextmanager
def stuck(port: int) -> Iterator[None]:
    """Have the Redis at this port run a function that writes nothing; its operator kills it in the end."""
    with redis.Redis(port=port) as operator:
        operator.config_set("busy-reply-threshold", BUSY_AFTER_MS)
        operator.function_load(ENDLESS, replace=True)
        thread = threading.Thread(target=call_endless, args=(port,), daemon=True)
        thread.start()
        until(lambda: is_busy(operator))
        try:
            yield
        finally:
            operator.function_kill()
            thread.join()
            operator.config_set("busy-reply-threshold", BUSY_BY_DEFAULT_MS)


def call_endless(port: int) -> None:
    """Call the function; return when it was killed, or when its server was."""
    with redis.Redis(port=port) as client, suppress(redis.RedisError):
        client.fcall("endless", 0)


def is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False
