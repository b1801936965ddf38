"""A client for services' pages that connects to loopback, so that no resolver needs to know their hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from tests.integration.live import until


@contextmanager
def followed(link: str) -> Iterator[httpx.Client]:
    """Yield a browser that followed a link and was admitted."""
    url = httpx.URL(link)
    host = f"{url.host}:{url.port}"
    with httpx.Client(base_url=f"http://127.0.0.1:{url.port}", headers={"Host": host}, timeout=60) as browser:
        answer = until(lambda: _answered(browser, url.raw_path.decode()))
        assert (answer.status_code, answer.headers["location"]) == (303, "/status"), answer.text
        browser.headers["Cookie"] = answer.headers["set-cookie"].partition(";")[0]
        yield browser


def _answered(browser: httpx.Client, path: str) -> httpx.Response | None:
    """Return a response, or None from a coordinator that does not reach the replica yet."""
    answer = browser.get(path)
    return None if answer.status_code == 503 else answer


def socket(browser: httpx.Client, path: str, protocols: Sequence[str], origin: str = "") -> Any:
    """Return a WebSocket that the browser opens from a page of its host, or of another origin."""
    host, headers = browser.headers["Host"], {"Cookie": browser.headers.get("Cookie", "")}
    return connect(
        f"ws://{host}{path}",
        address=(browser.base_url.host, browser.base_url.port),
        additional_headers=headers,
        subprotocols=[Subprotocol(one) for one in protocols],
        origin=Origin(origin or f"http://{host}"),
        proxy=None,
        open_timeout=60,
    )
