from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.live import Live, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start one coordinator and one worker with two lanes for all tests of a module."""
    with running(tmp_path_factory.mktemp("cluster")) as live:
        yield live
