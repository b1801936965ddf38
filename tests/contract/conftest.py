from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from jobs.store import Store
from jobs.store.server import connection
from jobs.store.work import wakeups
from tests.contract.api_transport import Served, serve
from tests.contract.lease_model import Bench


@pytest.fixture
def bench(redis_url: str) -> Iterator[Bench]:
    """The lease functions on an empty Redis of each version, with a clock that the test advances."""
    made = Bench(redis_url)
    yield made
    made.client.close()


@pytest.fixture
def store(any_redis_url: str) -> Iterator[Store]:
    """Return the store on an empty Redis of one version."""
    with closing(connection.connect(any_redis_url, retries=0, timeout=30)) as client:
        wakeups.create_wakeup_job(Store(client))
        yield Store(client)


@pytest.fixture
def served(any_redis_url: str, store: Store) -> Iterator[Served]:
    """Return a coordinator with this store, for workers without access to Redis."""
    with serve(any_redis_url, store) as made:
        yield made
