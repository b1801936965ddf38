"""Determine the client's IP address, also behind a trusted proxy, for the statistics of denied requests."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.types import ASGIApp, Receive, Scope, Send

from jobs.settings import Settings


class UnusableProxies(Exception):
    """TRUSTED_PROXIES is not valid. The message names the invalid part."""


class ClientAddress:
    """ASGI middleware that replaces the address of a trusted proxy with the client's address.

    A proxy appends the address of its client to X-Forwarded-For. Only the last address is used, because the client can
    forge the earlier ones.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._trusted = _networks(settings.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._trusted and (address := self._forwarded_address(scope)):
            scope["client"] = (address, 0)
        await self._app(scope, receive, send)

    def _forwarded_address(self, scope: Scope) -> str:
        """Return the address in a trusted proxy's header, or an empty string if there is no such proxy or header."""
        peer = _address((scope.get("client") or ("",))[0])
        if peer is None or not any(peer in network for network in self._trusted):
            return ""
        values = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        last = values[-1].decode("latin-1").rpartition(",")[2].strip() if values else ""
        return str(_address(last) or "")


def check(settings: Settings) -> None:
    """Raise UnusableProxies unless TRUSTED_PROXIES is a list of addresses and networks."""
    _networks(settings.trusted_proxies)


def _networks(text: str) -> list[IPv4Network | IPv6Network]:
    networks = []
    for word in filter(None, re.split(r"[\s,]+", text)):
        try:
            networks.append(ip_network(word))
        except ValueError as error:
            raise UnusableProxies(
                f"TRUSTED_PROXIES: {error}; list addresses and networks, such as 10.0.0.0/8"
            ) from None
    return networks


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        # Drop the zone, because Python accepts any text of any length after the %.
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None
