"""Where the coordinators may be sent by others: the form of URLs, and the addresses that they may reach."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import TypeAlias
from urllib.parse import urlsplit

from jobs import errors
from jobs.settings import Settings

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Characters of a URL at most.
MAX_URL = 2048
#: Characters that a URL consists of; what else there is must be written with %.
_WRITTEN = re.compile(r"[!#-;=?-\[\]_a-z~]*")
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?\.?")
#: IPv6 networks whose addresses contain IPv4 addresses, so that they lead wherever those do: mapped (which is_global
#: judges differently in different versions of Python), compatible, translated, NAT64, Teredo, 6to4.
_CONTAINING = tuple(
    map(
        ipaddress.IPv6Network,
        ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16"),
    )
)
#: Networks that are not for everybody and that is_global lets pass in some versions of Python.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "100.64.0.0/10",
            "192.0.0.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "240.0.0.0/4",
            "fec0::/10",
            "5f00::/16",
        ),
    )
)

#: Addresses at which clouds tell machines their credentials and settings: AWS, Google, Azure, Oracle, Alibaba, Tencent,
#: Scaleway, OpenStack. Allowing a network around one does not allow it.
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        (
            "169.254.169.254",
            "169.254.169.253",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.42.42",
            "169.254.0.23",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::253",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "fe80::a9fe:a9fe",
        ),
    )
)


class ForbiddenAddress(Exception):
    """An address may not be reached; the message names it and says why."""


def normalize_url(text: str) -> str:
    """Return a URL of http or https with its scheme and host in small letters. ValueError says what is wrong."""
    if len(text) > MAX_URL:
        raise ValueError(f"has {len(text)} characters; at most {MAX_URL}")
    if not _WRITTEN.fullmatch(text.lower()):
        raise ValueError("has characters that no URL has; write them with %, and other hosts' names as xn--...")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("must be a URL that begins with https://HOST or http://HOST")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password: whoever may read the job would see them")
    if "#" in text:
        raise ValueError("must not contain a #: no request carries what follows it")
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError("has no valid port behind its host; ports are 1..65535")
    _check_host(host, bracketed="[" in parts.netloc)
    return f"{parts.scheme}://{parts.netloc.lower()}{text[text.index('://') + 3 + len(parts.netloc) :]}"


def _check_host(host: str, *, bracketed: bool) -> None:
    if bracketed:
        if "%" in host:
            raise ValueError("must not name a network interface of the coordinator")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError("has no IPv6 address in its brackets") from None
    elif len(host) > 253 or not _HOST.fullmatch(host):
        raise ValueError("has a host that is no name and no address")


def is_address(host: str) -> bool:
    """Return True for a host that is an address, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def redact_path(text: str) -> str:
    """Return a URL without its path, which may hold a key."""
    origin, rest = _split_origin(text)
    return f"{origin}/..." if rest not in ("", "/") else text


def origin(text: str) -> str:
    """Return the scheme, host and port of a URL."""
    return _split_origin(text)[0]


def _split_origin(text: str) -> tuple[str, str]:
    found = re.match(r"[a-z]+://[^/?#]*", text)
    place = found[0] if found else ""
    return place, text[len(place) :]


class UnusableNetworks(Exception):
    """WEBHOOK_ALLOW cannot be used; the message says which part of it."""


class Guard:
    """Lets public addresses be reached, and those of the networks that are allowed besides."""

    def __init__(self, allowed: str = "") -> None:
        """`allowed`: networks, with commas or white space between them. UnusableNetworks names one that is none."""
        try:
            self._allowed = tuple(map(ipaddress.ip_network, filter(None, re.split(r"[\s,]+", allowed))))
        except ValueError as error:
            raise UnusableNetworks(f"WEBHOOK_ALLOW: {error}; give addresses and networks, as 10.0.0.0/8") from None

    def check(self, addresses: Sequence[str]) -> None:
        """Raise ForbiddenAddress unless every one of the addresses of a name may be reached."""
        for text in addresses:
            self._check(text)

    def check_host(self, url: str) -> None:
        """Raise ForbiddenAddress if the URL's host is a forbidden address. Host names are not resolved."""
        host = urlsplit(url).hostname or ""
        if is_address(host):
            self._check(host)

    def _check(self, text: str) -> None:
        address = ipaddress.ip_address(text.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        around = [each for each in self._allowed if address.version == each.version and address in each]
        if _is_metadata(address):
            around = [each for each in around if each.num_addresses == 1]
        if around:
            return
        if why := _refusal_reason(address):
            raise ForbiddenAddress(f"{text} is {why}; the operator may allow its network with WEBHOOK_ALLOW")


def parse_receiver(text: str, settings: Settings) -> str:
    """Return the URL that is told of an end, as `url` does. InvalidRequest, also without SECRETS_KEY."""
    if not settings.secrets_keys():
        why = "webhooks are signed with a key that is made of SECRETS_KEY, which is not set; set SECRETS_KEY for every"
        raise errors.InvalidRequest(f"notify: {why} coordinator (docs/webhooks.md), or leave it out", field="notify")
    try:
        told = normalize_url(text)
        Guard(settings.webhook_allow).check_host(told)
    except (ValueError, ForbiddenAddress) as error:
        raise errors.InvalidRequest(f"notify: {error}", field="notify") from None
    return told


def check(settings: Settings) -> None:
    """Raise UnusableNetworks when WEBHOOK_ALLOW names something else than networks."""
    Guard(settings.webhook_allow)


def _is_metadata(address: Address) -> bool:
    """Return True for an address of a cloud's metadata, also within one that stands for an IPv4 address."""
    same: list[Address | None] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        same += [address.sixtofour, address.teredo[1] if address.teredo else None]
        same += [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)] if _contains(address) else []
    return any(each in _METADATA for each in same)


def _contains(address: ipaddress.IPv6Address) -> bool:
    return any(address in network for network in _CONTAINING)


def _refusal_reason(address: Address) -> str:
    """Return why an address is not reached; empty for one that anybody may reach."""
    if _is_metadata(address):
        return "an address of a cloud's metadata"
    named = (
        ("is_unspecified", "the unspecified address"),
        ("is_loopback", "a loopback address"),
        ("is_link_local", "a link-local address"),
        ("is_multicast", "a multicast address"),
    )
    for name, words in named:
        if getattr(address, name):
            return words
    if isinstance(address, ipaddress.IPv6Address) and _contains(address):
        return "an IPv6 address that stands for an IPv4 address"
    if any(address.version == network.version and address in network for network in _SPECIAL):
        return "an address for special uses"
    return "" if address.is_global else "a private address"
