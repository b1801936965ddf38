from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.lease_model import Bench


@pytest.fixture
def bench(redis_url: str) -> Iterator[Bench]:
    """The lease scripts on an empty Redis of each version, with a clock that moves when told."""
    made = Bench(redis_url)
    yield made
    made.client.close()
