"""Validate user-supplied URLs that coordinators connect to, and the IP addresses of their hosts."""

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

#: Maximum length of a URL in characters.
MAX_URL = 2048
#: Characters allowed in a URL. All others must be percent-encoded.
_CHARACTERS = re.compile(r"[!#-;=?-\[\]_a-z~]*")
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?\.?")
#: IPv6 networks that embed IPv4 addresses: mapped, compatible, translated, NAT64, Teredo, 6to4.
#: Python versions disagree on whether IPv4-mapped addresses are global.
_EMBEDDING_IPV4 = tuple(
    map(
        ipaddress.IPv6Network,
        ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16"),
    )
)
#: Special-purpose networks that some Python versions treat as global.
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

#: Addresses of cloud metadata services, which provide credentials. WEBHOOK_ALLOW must list each one individually.
#: The services belong to AWS, Google, Azure, Oracle, Alibaba, Tencent, Scaleway and OpenStack.
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
    """Connections to an address are forbidden. The message contains the address and the reason."""


def normalize_url(text: str) -> str:
    """Return an http or https URL with its scheme and host in lower case. Raise ValueError if it is not valid."""
    if len(text) > MAX_URL:
        raise ValueError(f"has {len(text)} characters; the maximum is {MAX_URL}")
    if not _CHARACTERS.fullmatch(text.lower()):
        raise ValueError(
            "has characters that are not allowed in URLs; percent-encode them, and write international host names as"
            " xn--..."
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("must be a URL that starts with https://HOST or http://HOST")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password: everyone who can read the job would see them")
    if "#" in text:
        raise ValueError("must not contain a #: the part after it is never sent")
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError("must have a port from 1 to 65535, or none")
    _check_host(host, bracketed="[" in parts.netloc)
    return f"{parts.scheme}://{parts.netloc.lower()}{text[text.index('://') + 3 + len(parts.netloc) :]}"


def _check_host(host: str, *, bracketed: bool) -> None:
    if bracketed:
        if "%" in host:
            raise ValueError("must not name a network interface of the coordinator")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError("must have a valid IPv6 address in its brackets") from None
    elif len(host) > 253 or not _HOST.fullmatch(host):
        raise ValueError("has a host that is neither a host name nor an IP address")


def is_address(host: str) -> bool:
    """Return True if the host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def redact_path(text: str) -> str:
    """Return a URL with its path redacted, because the path can contain a key."""
    origin, path = _split_origin(text)
    return f"{origin}/..." if path not in ("", "/") else text


def origin(text: str) -> str:
    """Return the scheme, host and port of a URL."""
    return _split_origin(text)[0]


def _split_origin(text: str) -> tuple[str, str]:
    match = re.match(r"[a-z]+://[^/?#]*", text)
    origin = match[0] if match else ""
    return origin, text[len(origin) :]


class UnusableNetworks(Exception):
    """WEBHOOK_ALLOW is invalid. The message names the invalid part."""


class Guard:
    """Allows connections to public addresses and to the networks in WEBHOOK_ALLOW."""

    def __init__(self, allowed: str = "") -> None:
        """Parse a list of networks separated by commas or white space. Raise UnusableNetworks if one is invalid."""
        try:
            self._allowed = tuple(map(ipaddress.ip_network, filter(None, re.split(r"[\s,]+", allowed))))
        except ValueError as error:
            raise UnusableNetworks(f"WEBHOOK_ALLOW: {error}; list addresses and networks, such as 10.0.0.0/8") from None

    def check(self, addresses: Sequence[str]) -> None:
        """Raise ForbiddenAddress unless all addresses are allowed."""
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
        allowed = [each for each in self._allowed if address.version == each.version and address in each]
        if _is_metadata(address):
            allowed = [each for each in allowed if each.num_addresses == 1]
        if allowed:
            return
        if reason := _refusal_reason(address):
            raise ForbiddenAddress(f"{text} is {reason}; the operator can allow its network with WEBHOOK_ALLOW")


def parse_receiver(text: str, settings: Settings) -> str:
    """Return the normalized URL of a webhook. Raise InvalidRequest if it is not allowed or SECRETS_KEY is not set."""
    if not settings.secrets_keys():
        why = "webhooks are signed with a key derived from SECRETS_KEY, which is not set; set SECRETS_KEY for every"
        raise errors.InvalidRequest(f"notify: {why} coordinator (docs/webhooks.md), or omit notify", field="notify")
    try:
        url = normalize_url(text)
        Guard(settings.webhook_allow).check_host(url)
    except (ValueError, ForbiddenAddress) as error:
        raise errors.InvalidRequest(f"notify: {error}", field="notify") from None
    return url


def check(settings: Settings) -> None:
    """Raise UnusableNetworks unless WEBHOOK_ALLOW is a list of networks."""
    Guard(settings.webhook_allow)


def _is_metadata(address: Address) -> bool:
    """Return True if the address, or an IPv4 address embedded in it, belongs to a cloud's metadata service."""
    candidates: list[Address | None] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        candidates += [address.sixtofour, address.teredo[1] if address.teredo else None]
        candidates += [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)] if _embeds_ipv4(address) else []
    return any(each in _METADATA for each in candidates)


def _embeds_ipv4(address: ipaddress.IPv6Address) -> bool:
    return any(address in network for network in _EMBEDDING_IPV4)


def _refusal_reason(address: Address) -> str:
    """Return the reason why an address is forbidden, or an empty string if it is public."""
    if _is_metadata(address):
        return "an address of a cloud metadata service"
    reasons = (
        ("is_unspecified", "the unspecified address"),
        ("is_loopback", "a loopback address"),
        ("is_link_local", "a link-local address"),
        ("is_multicast", "a multicast address"),
    )
    for attribute, reason in reasons:
        if getattr(address, attribute):
            return reason
    if isinstance(address, ipaddress.IPv6Address) and _embeds_ipv4(address):
        return "an IPv6 address that embeds an IPv4 address"
    if any(address.version == network.version and address in network for network in _SPECIAL):
        return "a special-purpose address"
    return "" if address.is_global else "a private address"
