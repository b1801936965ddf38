from __future__ import annotations

import pytest

from tests.contract.lease_model import Bench


@pytest.fixture
def bench(redis_url: str) -> Bench:
    """The lease scripts on an empty Redis of each version, with a clock that moves when told."""
    return Bench(redis_url)
