"""Fixtures for several files of unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.models_bench import Pool
    from tests.unit.workflow_bench import Flows


@pytest.fixture
def flow(any_redis_url: str, tmp_path: Path) -> Iterator[Flows]:
    """Workflows on one version of Redis, with a leader whose rounds the test runs."""
    from tests.unit.workflow_bench import Flows  # imported here, because most unit tests do not need these modules

    made = Flows(any_redis_url, tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def flows(redis_url: str, tmp_path: Path) -> Iterator[Flows]:
    """Workflows on each version of Redis."""
    from tests.unit.workflow_bench import Flows

    made = Flows(redis_url, tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def pool(any_redis_url: str, tmp_path: Path) -> Iterator[Pool]:
    """Models and data on one version of Redis."""
    from tests.unit.models_bench import Pool

    made = Pool(any_redis_url, tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def both(redis_url: str, tmp_path: Path) -> Iterator[Pool]:
    """Models and data on each version of Redis."""
    from tests.unit.models_bench import Pool

    made = Pool(redis_url, tmp_path / "store")
    yield made
    made.close()
