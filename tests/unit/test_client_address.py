"""Tests that a denied request is recorded with the client address from a trusted proxy, never from the client."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from coordinator import app
from coordinator.audit.denials import Denials
from coordinator.server import client_address
from coordinator.server.client_address import ClientAddress, UnusableProxies
from jobs.settings import Settings

PROXIES = "10.1.0.0/16, 192.0.2.7,2001:db8::/32"


def seen(peer: str, *forwarded: str, trusted: str = PROXIES) -> str:
    """Return the address that the application sees behind the layer."""
    addresses = []

    async def application(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        addresses.append(scope["client"][0])

    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    scope = {"type": "http", "client": (peer, 1234), "headers": headers}
    asyncio.run(ClientAddress(application, Settings(trusted_proxies=trusted))(scope, None, None))  # type: ignore[arg-type]
    return str(addresses[0])


def test_a_trusted_proxys_word_counts() -> None:
    assert seen("10.1.2.3", "203.0.113.9") == seen("192.0.2.7", "203.0.113.9") == "203.0.113.9"
    assert seen("2001:db8::1", "2001:db9::2") == "2001:db9::2"


@pytest.mark.parametrize("lie", ["127.0.0.1", "6.6.6.6", "10.1.0.1", "unknown", "", "1, 2", "6.6.6.6:80", "<script>"])
def test_what_the_caller_wrote_before_the_proxys_word_does_not(lie: str) -> None:
    assert seen("10.1.2.3", f"{lie}, 203.0.113.9") == "203.0.113.9"
    assert seen("10.1.2.3", lie, "203.0.113.9") == "203.0.113.9"


def test_nobody_else_is_believed() -> None:
    for peer in ("127.0.0.1", "10.2.0.1", "192.0.2.8", "203.0.113.5", "::1", "testclient", ""):
        assert seen(peer, "6.6.6.6") == peer
    assert seen("127.0.0.1", "6.6.6.6", trusted="") == "127.0.0.1"


def test_a_proxy_that_names_no_address_stands_for_its_callers() -> None:
    assert seen("10.1.2.3") == "10.1.2.3"
    for word in ("unknown", "", "203.0.113.9,", "[::1]:80"):
        assert seen("10.1.2.3", word) == "10.1.2.3"


def test_an_address_has_no_text_of_any_length_behind_it() -> None:
    assert seen("10.1.2.3", "fe80::1%" + "x" * 60_000) == "fe80::1"


def test_a_denied_call_is_counted_for_the_address_that_the_proxy_names(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[str] = []
    monkeypatch.setattr(Denials, "count", lambda self, status, source, actor: counts.append(source))
    settings = Settings(redis_url="redis://127.0.0.1:1/0", cluster_token="t", trusted_proxies="10.1.0.0/16")
    api = app.create(settings)

    async def asked(peer: str) -> None:
        transport = httpx.ASGITransport(api, client=(peer, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await client.get("/api/status", headers={"X-Forwarded-For": "6.6.6.6, 203.0.113.9"})

    for peer in ("10.1.2.3", "198.51.100.4"):
        asyncio.run(asked(peer))
    assert counts == ["203.0.113.9", "198.51.100.4"]


def test_what_is_no_network_is_refused_at_the_start() -> None:
    for text in ("nginx", "10.0.0.1/8", "10.0.0.0/33"):
        with pytest.raises(UnusableProxies, match="TRUSTED_PROXIES"):
            client_address.check(Settings(trusted_proxies=text))
    client_address.check(Settings(trusted_proxies=PROXIES))
