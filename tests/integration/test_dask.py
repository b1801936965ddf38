"""Tests Dask workers on a real cluster: functions of this Python, a killed scheduler, and access control."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import distributed
import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests import fetch
from tests.integration.live import Live, until
from tests.integration.page_browser import followed, socket
from threads_cluster import Cluster

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux"),
    pytest.mark.timeout(600),  # each replica imports for seconds of a core
]

TOKEN = "t" * 40


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a cluster with one runner with three slots on the coordinator's host."""
    with tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        live = Live(tmp_path_factory.mktemp("dask"), workers=0, CLUSTER_TOKEN=TOKEN, HOST_ID="host-0")
        try:
            live.start_redis()
            live.start_coordinator()
            live.start_runner(0, 3, RUNNER_DIR=place)
            live.wait_ready(1)
            yield live
        finally:
            live.stop()


@pytest.fixture
def cluster(live: Live) -> Iterator[Cluster]:
    with Cluster(live.url(), TOKEN) as cluster:
        yield cluster


def test_functions_are_called_on_workers_that_are_there_for_the_block(live: Live, cluster: Cluster) -> None:
    with cluster.dask(workers=1, threads=2) as client:
        assert client.submit(lambda x: x**2, 10).result() == 100
        assert client.gather(client.map(lambda x: x + 1, range(20))) == list(range(1, 21))
        [row] = cluster.services.list()
        assert (row["engine"], row["ready"]) == ("dask", 1)
        jobs = {one["job_id"] for one in row["running"]}
        client.wait_for_workers(1, timeout=60)
        assert set(client.run(lambda: os.environ["CLUSTER_JOB_ID"]).values()) == jobs
    until(lambda: cluster.services.list() == [])
    until(lambda: not [row for row in live.get("/api/jobs?type=service")["jobs"] if row["state"] == "running"])


def test_a_scheduler_that_is_killed_is_followed_by_another_and_strangers_are_let_in_nowhere(cluster: Cluster) -> None:
    cluster.services.serve("kept", "dask", replicas=2)
    cluster.services.wait("kept", 240)
    with cluster.dask(name="kept") as client:
        found = cluster.services.access("kept")
        address = fetch.get(f"http://{found['address']}:{found['port']}/address").text
        for wrong in (
            {"address": address.replace("tls", "tcp")},
            {"address": address, "security": _security("x" * 32)},
        ):
            with pytest.raises(Exception, match=r"(?i)tls|time|ssl|connect|security"):
                distributed.Client(**wrong, timeout=1)
        leader = client.run_on_scheduler(os.getpid)
        with suppress(Exception):  # it is gone before it has answered that
            os.kill(leader, signal.SIGKILL)
    until(lambda: cluster.services.get("kept")["failures"])

    def answers() -> Any:
        with suppress(Exception), cluster.dask(name="kept", timeout=20) as client:
            return client.submit(sum, [1, 2, 3]).result(timeout=20)

    assert until(answers, 180) == 6
    assert cluster.services.access("kept")["job_id"] != found["job_id"]
    cluster.services.delete("kept")


def _security(key: str) -> Any:
    """Return the security settings of a client with another key."""
    from engines.dask.server import certificate

    signed, private = certificate(key)
    security: Any = distributed.security.Security
    return security(tls_ca_file=signed, tls_client_cert=signed, tls_client_key=private, require_encryption=True)


# -- its dashboard -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(live: Live) -> Iterator[str]:
    """Return the name of a service whose dashboard answers."""
    with Cluster(live.url(), TOKEN) as cluster:
        cluster.services.serve("shown", "dask", replicas=1)
        cluster.services.wait("shown", 240)
        yield "shown"
        cluster.services.delete("shown")


@pytest.fixture
def opened(cluster: Cluster, shown: str) -> Iterator[httpx.Client]:
    with followed(cluster.services.open(shown)["url"]) as browser:
        yield browser


def test_a_browser_sees_the_dashboard_and_a_task_that_begins(
    opened: httpx.Client, cluster: Cluster, shown: str
) -> None:
    page = opened.get("/individual-progress")
    assert page.status_code == 200 and "frame-ancestors 'self'" in page.headers["content-security-policy"]
    [script] = set(re.findall(r'"(static/js/bokeh\.min\.js[^"]*)"', page.text)) or {""}
    assert script and opened.get(f"/{script}").headers["content-type"].startswith("text/javascript")
    [token] = re.findall(r'"token":"([^"]+)"', page.text)
    with socket(opened, "/individual-progress/ws", ["bokeh", token]) as plot:
        assert plot.subprotocol == "bokeh" and '"ACK"' in str(plot.recv(60))
        for part in ({"msgid": "1", "msgtype": "PULL-DOC-REQ"}, {}, {}):
            plot.send(json.dumps(part))
        with cluster.dask(name=shown) as client:
            kept = client.submit(lambda: 21, key="seen_in_the_plot-1")  # while it is, it is drawn
            assert kept.result() == 21
            until(lambda: "seen_in_the_plot" in str(plot.recv(60)))


def test_nobody_else_is_shown_the_dashboard(opened: httpx.Client, cluster: Cluster, live: Live, shown: str) -> None:
    page = "/individual-progress"
    with pytest.raises(InvalidStatus, match="403"):
        socket(opened, f"{page}/ws", ["bokeh"], origin="http://elsewhere.localhost")
    assert opened.get(page, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"}).status_code == 403
    assert opened.post("/api/v1/retire_workers", json={}).status_code == 405
    asked = fetch.get(f"{live.url()}/api/services", headers={"Origin": f"http://{opened.headers['Host']}"})
    assert asked.status_code == 403 and "page of a service" in asked.text
    cookie = opened.headers.pop("Cookie")
    for wrong in ("", cookie[:-2] + "xx"):
        opened.headers["Cookie"] = wrong
        refused = opened.get(page)
        assert refused.status_code == 401 and "cluster service open" in refused.text
        with pytest.raises(InvalidStatus, match="401"):
            socket(opened, f"{page}/ws", ["bokeh"])
    reached = cluster.services.access(shown)  # on loopback, without the replica's key
    assert fetch.get(f"http://{reached['address']}:{reached['port']}/status").status_code == 404
