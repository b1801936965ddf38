"""A Redis that takes no writes is one that cannot be reached: callers wait and repeat."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis

from jobs import broker, leases


def test_a_redis_that_cannot_save_counts_as_unreachable(any_redis_url: str) -> None:
    book = leases.Leases(broker.connect(any_redis_url, retries=0))
    with redis.Redis.from_url(any_redis_url) as client:
        obstacle = Path(client.config_get("dir")["dir"]) / client.config_get("dbfilename")["dbfilename"]
        obstacle.unlink(missing_ok=True)
        obstacle.mkdir()
        save(client)
        client.config_set("save", "3600 1")
        try:
            with pytest.raises(leases.Unreachable, match="MISCONF"):
                book.lead("somebody")
        finally:
            client.config_set("save", "")
            obstacle.rmdir()
            save(client)
            obstacle.unlink()
    assert book.lead("somebody")
    book.client.close()


def save(client: redis.Redis) -> None:
    client.bgsave()
    while client.info("persistence")["rdb_bgsave_in_progress"]:
        time.sleep(0.01)
