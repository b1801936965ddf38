from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import kernels
from tests.contract.lease_model import Bench


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """Processes of tests that begin at the same time share the compilation, each kind once."""
    kernels.compile_all()


@pytest.fixture
def bench(redis_url: str) -> Iterator[Bench]:
    """The lease scripts on an empty Redis of each version, with a clock that moves when told."""
    made = Bench(redis_url)
    yield made
    made.client.close()
