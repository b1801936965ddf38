"""P7's job as an actor of Dramatiq, with messages in JSON.

Run it by `python -m dramatiq benchmarks.peers.dramatiq_peer`.
"""

from __future__ import annotations

import os
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from benchmarks.peers import peer_task

_url = os.environ.get("DRAMATIQ_REDIS_URL", "redis://127.0.0.1:6379/2")


class Warm(dramatiq.Middleware):
    """Loads the kernel in each process of the workers."""

    def after_process_boot(self, broker: dramatiq.Broker) -> None:
        peer_task.warm()


broker = RedisBroker(url=_url)
# It waits for results in one blocking call: the library's usual limit of 5 s a reply would end that as an error.
broker.add_middleware(Results(backend=RedisBackend(client=redis.Redis.from_url(_url, socket_timeout=None))))
broker.add_middleware(Warm())
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def statistics(parameters: dict[str, Any]) -> dict[str, Any]:
    return peer_task.compute(parameters)
