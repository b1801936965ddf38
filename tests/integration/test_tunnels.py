"""Tests replicas on an unreachable host, to which its runner opens tunnels from two coordinators."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests import fetch
from tests.integration.live import TOP, Live, until
from tests.integration.nginx_bench import Front, Names, front, require_nginx
from tests.integration.page_browser import followed, socket

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TOKEN = "t" * 40
ENGINE = TOP / "benchmarks" / "load" / "paced_engine.py"


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, Front]]:
    """Start two coordinators behind nginx, and a runner that acts as if it were on another host."""
    require_nginx()
    folder, names = tmp_path_factory.mktemp("tunnels"), Names()
    names.start()
    live = Live(folder, workers=0, coordinators=2, own_addresses=True, CLUSTER_TOKEN=TOKEN, HOST_ID="here")
    names.are(coordinator=live.addresses, web=["127.0.0.9"])
    with tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        try:
            live.start_redis()
            for number in range(2):
                live.start_coordinator(number)
            with front(names, live.ports[0], REQUEST_RATE="10000", REQUEST_BURST="10000") as proxy:
                live.start_runner(0, 4, RUNNER_DIR=place, HOST_ID="far", WORKER_API=proxy.url, SERVICE_ADDRESS="tunnel")
                live.wait_ready(1)
                serve(live, "far")
                yield live, proxy
        finally:
            live.stop()
            names.end()


def serve(live: Live, name: str, **more: Any) -> None:
    parameters = {"command": [sys.executable, str(ENGINE), "{port}"]}
    answer = live.post("/api/services", {"name": name, "engine": "http", "parameters": parameters, **more})
    assert answer.status_code == 201, answer.text
    until(lambda: live.get(f"/api/services/{name}")["ready"] == 1, 90)


def headers() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}


def streamed(url: str, count: int, pace: float = 0, heard: threading.Event | None = None, name: str = "far") -> int:
    """Return the number of received tokens of a stream; -1 if it broke."""
    asked: dict[str, Any] = {"model": name, "messages": [], "stream": True, "max_tokens": count, "pace": pace}
    tokens, ended = 0, False
    try:
        with fetch.stream("POST", f"{url}/v1/chat/completions", json=asked, headers=headers(), timeout=60) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                tokens += '"delta"' in line
                ended = ended or line == "data: [DONE]"
                if heard and tokens:
                    heard.set()
    except httpx.TransportError:
        return -1
    return tokens if ended else -1


def test_streams_through_both_coordinators_come_whole(behind: tuple[Live, Front]) -> None:
    live, proxy = behind
    urls = [live.url(0), live.url(1), proxy.url, proxy.url] * 2
    with ThreadPoolExecutor(len(urls)) as threads:
        assert list(threads.map(lambda url: streamed(url, 3000), urls)) == [3000] * len(urls)
    for number in range(2):
        asked = {"model": "far", "prompt": "x" * 500_000, "max_tokens": 1}
        answer = fetch.post(f"{live.url(number)}/v1/completions", json=asked, headers=headers(), timeout=60)
        assert answer.json()["choices"] == [{"text": " tok"}], answer.text


def has_tunnels_to_both(live: Live) -> None:
    """Wait until each coordinator has reported the runner's tunnel, which it does every five seconds."""
    said = set[bytes]()

    def have_said() -> bool:
        if url := live.redis().hget("ct:tunnel:runner-0", "url"):
            said.add(url)
        return len(said) == 2

    until(have_said, every=0.005)


def test_a_coordinator_that_dies_leaves_the_others_tunnels_and_gets_one_when_it_is_back(
    behind: tuple[Live, Front],
) -> None:
    live, _ = behind
    has_tunnels_to_both(live)  # else the stream of one comes by way of the other
    begun = [threading.Event(), threading.Event()]
    with ThreadPoolExecutor(2) as threads:
        tokens = (60, 1_000_000)  # of the other coordinator: it ends with that
        streams = [threads.submit(streamed, live.url(one), tokens[one], 20, begun[one]) for one in range(2)]
        assert all(one.wait(60) for one in begun)
        live.kill("coordinator-1")
        assert [one.result() for one in streams] == [60, -1]
    live.start_coordinator(1)
    asked = {"model": "far", "prompt": "once", "max_tokens": 1}
    until(lambda: fetch.post(f"{live.url(1)}/v1/completions", json=asked, headers=headers(), timeout=60).is_success)


def test_a_coordinator_that_a_runner_does_not_know_reaches_it_through_the_one_that_it_does(
    behind: tuple[Live, Front],
) -> None:
    """For example, joined machines know only the HTTPS endpoint of a local cluster."""
    live, _ = behind
    with tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        live.start_runner(1, 1, RUNNER_DIR=place, HOST_ID="away", RUNNER_LABELS="away", SERVICE_ADDRESS="tunnel")
        live.wait_ready(2)
        serve(live, "away", requirements={"labels": ["away"]})
        for number in (0, 1):
            asked = {"model": "away", "prompt": "once", "max_tokens": 1}
            answer = fetch.post(f"{live.url(number)}/v1/completions", json=asked, headers=headers(), timeout=60)
            assert answer.status_code == 200, answer.text
            assert streamed(live.url(number), 3000, name="away") == 3000
        live.kill("runner-1")


def test_nobody_but_a_worker_opens_a_tunnel(behind: tuple[Live, Front]) -> None:
    live, proxy = behind
    reader = live.user("read")["CLUSTER_TOKEN"]
    for url in (live.url(0), proxy.url):
        for token, status in (("", 401), ("tc_" + "0" * 30, 401), (reader, 403), (TOKEN, 403)):
            more = {"Authorization": f"Bearer {token}"} if token else {}
            with pytest.raises(InvalidStatus) as refused:
                connect(f"ws{url.removeprefix('http')}/api/worker/tunnel", additional_headers=more, open_timeout=60)
            answer = refused.value.response
            assert answer.status_code == status, (token[:4], answer)
            assert json.loads(answer.body or b"")["status"] == status


def test_the_page_of_a_service_comes_through_nginx_and_the_tunnel(behind: tuple[Live, Front]) -> None:
    live, proxy = behind
    made = live.post("/api/services", {"name": "board", "engine": "dask", "parameters": {}})
    assert made.status_code == 201, made.text
    until(lambda: live.get("/api/services/board")["ready"] == 1, 120)
    asked = until(lambda: _opened(proxy.url))
    with followed(asked) as browser:
        page = browser.get("/individual-progress")
        assert page.status_code == 200 and "frame-ancestors 'self'" in page.headers["content-security-policy"]
        assert page.headers.get_list("content-security-policy", split_commas=False) == [
            page.headers["content-security-policy"]
        ]
        assert page.headers["x-frame-options"] == "SAMEORIGIN" and page.headers["x-request-id"]
        [token] = re.findall(r'"token":"([^"]+)"', page.text)
        with socket(browser, "/individual-progress/ws", ["bokeh", token]) as plot:
            assert '"ACK"' in str(plot.recv(60))
        with pytest.raises(InvalidStatus, match="403"):
            socket(browser, "/individual-progress/ws", ["bokeh"], origin=proxy.url)
        browser.headers["Cookie"] = ""
        assert browser.get("/individual-progress").status_code == 401
    fetch.delete(f"{live.url()}/api/services/board", headers=headers(), timeout=60)


def _opened(url: str) -> str:
    answer = fetch.post(f"{url}/api/services/board/open", headers=headers(), timeout=60)
    return str(answer.json()["url"]) if answer.status_code == 200 else ""
