"""Address of who asks, for the count of denied calls: behind a proxy that is trusted, the one that the proxy names."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.types import ASGIApp, Receive, Scope, Send

from jobs.settings import Settings


class UnusableProxies(Exception):
    """TRUSTED_PROXIES cannot be used; the message says which part of it."""


class ClientAddress:
    """ASGI layer that puts the caller's address in the place of a trusted proxy's.

    A proxy appends the address that it sees to X-Forwarded-For. So the last one counts, which no caller can write;
    those before it are the caller's word.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._trusted = _networks(settings.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._trusted and (named := self._named(scope)):
            scope["client"] = (named, 0)
        await self._app(scope, receive, send)

    def _named(self, scope: Scope) -> str:
        """Return the address that a trusted proxy names; empty when the caller is none, or names none."""
        peer = _address((scope.get("client") or ("",))[0])
        if peer is None or not any(peer in network for network in self._trusted):
            return ""
        values = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        last = values[-1].decode("latin-1").rpartition(",")[2].strip() if values else ""
        return str(_address(last) or "")


def check(settings: Settings) -> None:
    """Raise UnusableProxies when TRUSTED_PROXIES names something else than addresses and networks."""
    _networks(settings.trusted_proxies)


def _networks(text: str) -> list[IPv4Network | IPv6Network]:
    networks = []
    for word in filter(None, re.split(r"[\s,]+", text)):
        try:
            networks.append(ip_network(word))
        except ValueError as error:
            raise UnusableProxies(f"TRUSTED_PROXIES: {error}; give addresses and networks, as 10.0.0.0/8") from None
    return networks


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        # Python takes any text after a %, of any length.
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None
