"""The cluster that a benchmark measures: open, or with GUARDED=1 as several tenants would have it.

With WORKER_API=1 its worker reaches the coordinator alone, and no Redis.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import fetch
from tests.integration.live import Live, running, until
from threads_cluster.client.api import Cluster

ADMIN = "an-admin-token-of-the-benchmarks"
_AUTHORIZED = {"Authorization": f"Bearer {ADMIN}"}
#: Tenants beside the one that submits, so that their order is more than one name.
_OTHERS = ("physics", "biology")


@contextlib.contextmanager
def cluster(*, lanes: int = 2) -> Iterator[tuple[Live, Cluster]]:
    """Give a cluster of one worker and a client of it, whose folder goes when the context ends.

    Guarded, it wants tokens and writes an audit file, and the client's token is of a tenant whose caps are all set.
    """
    with tempfile.TemporaryDirectory() as folder:
        if not os.environ.get("GUARDED"):
            over_api = bool(os.environ.get("WORKER_API"))
            with running(Path(folder), lanes=lanes, over_api=over_api) as live, Cluster(live.url(), token="") as client:
                yield live, client
            return
        with _guarded(Path(folder), lanes) as live, Cluster(live.url(), token=_token(live)) as client:
            yield live, client


@contextlib.contextmanager
def _guarded(folder: Path, lanes: int) -> Iterator[Live]:
    over_api = bool(os.environ.get("WORKER_API"))
    live = Live(
        folder,
        lanes=lanes,
        over_api=over_api,
        CLUSTER_TOKEN=ADMIN,
        AUTH="required",
        AUDIT_FILE=str(folder / "audit.jsonl"),
    )
    try:
        live.start_redis()
        live.start_coordinator()
        live.start_worker()
        until(lambda: _asked(live, "GET", "/api/status")["workers"]["ready"] == 1, 300)
        yield live
    finally:
        live.stop()


def _token(live: Live) -> str:
    """Register the tenants, and return a token that may read and submit."""
    for name in (*_OTHERS, "bench"):
        _asked(live, "PUT", f"/api/tenants/{name}", {"weight": 3, "max_lanes": 100, "max_jobs": 100_000})
    body = {"name": "bench", "tenant": "bench", "scopes": ["read", "submit"]}
    token: str = _asked(live, "POST", "/api/tokens", body)["token"]
    return token


def _asked(live: Live, method: str, path: str, body: object = None) -> dict[str, Any]:
    answer = fetch.request(method, live.url() + path, json=body, headers=_AUTHORIZED, timeout=30)
    assert answer.is_success, answer.text
    content: dict[str, Any] = answer.json()
    return content
