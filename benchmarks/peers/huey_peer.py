"""P7's job as a task of Huey; run by `python -m huey.bin.huey_consumer benchmarks.peers.huey_peer.huey`.

Its messages are pickled, as Huey's are, and who waits for a result is told of it instead of asking again and again.
"""

from __future__ import annotations

import os
from typing import Any

import redis
from huey import RedisHuey

from benchmarks.peers import peer_task

_url = os.environ.get("HUEY_REDIS_URL", "redis://127.0.0.1:6379/3")
# The library's usual limit of 5 s a reply would end the wait for a result as if its time were over.
_pool = redis.ConnectionPool.from_url(_url, socket_timeout=None)
huey = RedisHuey("peer", connection_pool=_pool, notify_result=True)


@huey.on_startup()
def warm() -> None:
    peer_task.warm()


@huey.task()
def statistics(parameters: dict[str, Any]) -> dict[str, Any]:
    return peer_task.compute(parameters)
