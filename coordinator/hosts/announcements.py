"""Announce the API by mDNS, so that `cluster discover` on other machines finds it. No secrets are announced.

In a container, nothing is announced, because its addresses are not reachable. PUBLISHED is set there instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from jobs import VERSION
from jobs.network import exposure
from jobs.settings import Settings

log = logging.getLogger(__name__)

#: Service type in the form of RFC 6763. threads_cluster/cli/discovery.py searches for the same type.
TYPE = "_threads-cluster._tcp.local."
#: Bind addresses that select all addresses.
#: Bind address that selects all IPv4 addresses.
_ANYWHERE, _IPV4 = ("", "::", "0.0.0.0"), "0.0.0.0"
#: Maximum length of a DNS label in bytes.
_MAX_LABEL = 63
#: Timeout in seconds for withdrawing the announcement.
FAREWELL_SECONDS = 1.0

Stop = Callable[[], Awaitable[None]]


def is_enabled(settings: Settings) -> bool:
    """Return True if the API should be announced: it listens on an address of this machine other than loopback."""
    return settings.discoverable == "true" and not settings.published and not exposure.is_loopback(settings.bind)


async def begin(settings: Settings, interfaces: Sequence[str] = ()) -> Stop:
    """Announce the API if enabled, and return a function that stops the announcement. Failures are only logged.

    `interfaces` are addresses of this machine to use instead of those on which the coordinator listens.
    """
    if not is_enabled(settings):
        return do_nothing
    if importlib.util.find_spec("zeroconf") is None:
        log.debug(
            "the API is not announced by mDNS, because zeroconf is not installed:"
            " pip install --require-hashes -r requirements/discovery.txt, or set DISCOVERABLE=false"
        )
        return do_nothing
    task = asyncio.create_task(announce(settings, interfaces))

    async def stop() -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, TimeoutError):
            await task

    return stop


async def do_nothing() -> None:
    return


async def announce(settings: Settings, interfaces: Sequence[str]) -> None:
    """Announce the API until cancelled, and then withdraw the announcement."""
    from zeroconf.asyncio import AsyncZeroconf

    try:
        responder = AsyncZeroconf(**_select_interfaces(settings.bind, interfaces))
    except OSError as error:
        log.warning("the API is not announced by mDNS: %s", error)
        return
    try:
        info = service_info(settings, interfaces)
        await responder.async_register_service(info, allow_name_change=True)
        log.info("the API is announced by mDNS as %s", info.name)
        await asyncio.Event().wait()
    except Exception as error:
        log.warning("the API is not announced by mDNS: %s: %s", type(error).__name__, error)
    finally:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(responder.async_unregister_all_services(), FAREWELL_SECONDS)
        await responder.async_close()


def _select_interfaces(bind: str, interfaces: Sequence[str]) -> dict[str, Any]:
    """Return the interfaces on which to announce: the interface of the bind address, or all."""
    from zeroconf import InterfaceChoice, IPVersion

    if interfaces:
        return {"interfaces": list(interfaces)}
    if bind == _IPV4:
        return {"interfaces": InterfaceChoice.All, "ip_version": IPVersion.V4Only}
    if bind in _ANYWHERE:
        return {"interfaces": InterfaceChoice.All, "ip_version": IPVersion.All}
    return {"interfaces": [bind]}


def list_addresses(bind: str, interfaces: Sequence[str]) -> list[str]:
    """Return the addresses at which other machines can reach the API."""
    import ifaddr

    if interfaces:
        return list(interfaces)
    if bind not in _ANYWHERE:
        return [bind]
    all_of_them = (address for adapter in ifaddr.get_adapters() for address in adapter.ips)
    # IPv6 addresses are triples of address, flow and scope.
    found = [one.ip if isinstance(one.ip, str) else one.ip[0] for one in all_of_them if one.is_IPv4 or bind != _IPV4]
    return [address for address in found if not exposure.is_loopback(address)]


def service_info(settings: Settings, interfaces: Sequence[str]) -> Any:
    from zeroconf.asyncio import AsyncServiceInfo

    label = f"{re.sub(r'[^A-Za-z0-9-]', '-', socket.gethostname())[: _MAX_LABEL - 6]}-{settings.coordinator_port}"
    facts = {
        "version": VERSION,
        "tls": str(int(bool(settings.tls_certificate))),
        "token": str(int(exposure.needs_token(settings))),
    }
    return AsyncServiceInfo(
        TYPE,
        f"{label}.{TYPE}",
        port=settings.coordinator_port,
        properties=facts,
        server=f"{label}.local.",
        parsed_addresses=list_addresses(settings.bind, interfaces),
    )
