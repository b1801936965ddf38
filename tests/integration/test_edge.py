"""The edge of a real coordinator: who is let in, and requests that are too large, too slow or given up half way."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.integration.live import Live


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One coordinator over Redis; nobody computes."""
    live = Live(tmp_path_factory.mktemp("edge"), workers=0)
    try:
        live.start_redis()
        live.start_coordinator()
        yield live
    finally:
        live.stop()


def test_a_page_of_somebody_else_neither_drives_nor_reads_the_cluster(coordinator: Live) -> None:
    with httpx.Client(base_url=coordinator.url()) as http:
        simple = {"Origin": "http://evil.example", "Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site"}
        job = '{"type": "collatz", "parameters": {"start_number": 1, "number_count": 10}}'
        for content, headers in ((job, simple), (job, simple | {"Content-Type": "application/json"})):
            assert http.post("/api/submit", content=content, headers=headers).status_code in (403, 415)
        assert http.post("/api/nodes/worker-0/drain", headers={"Origin": "http://evil.example"}).status_code == 403
        told = http.get("/api/status", headers={"Host": "evil.example"})
        assert told.status_code == 403 and "ALLOWED_HOSTS" in told.json()["detail"]
        assert http.get("/health", headers={"Host": "10.0.0.7"}).status_code == 200
        assert http.get("/api/jobs").json()["jobs"] == []
        assert http.post("/api/submit", content=job, headers={"Content-Type": "application/json"}).status_code == 202
