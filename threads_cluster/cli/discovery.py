"""The command `cluster discover`, which finds clusters that announce themselves with mDNS.

Any machine can send an announcement, so results are only displayed.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeAlias

import typer

from threads_cluster.cli import show
from threads_cluster.cli.session import as_json_option
from threads_cluster.errors import ClientError, Misconfigured
from threads_cluster.terminal import visible

Json: TypeAlias = dict[str, Any]

#: Service type of announcements by clusters, in the format of RFC 6763.
TYPE = "_threads-cluster._tcp.local."
#: Maximum number of announcements to read.
#: Maximum length in characters of a text in an announcement.
_MOST, _LONGEST = 200, 64
#: Timeout in seconds for completing all incomplete announcements.
#: Timeout in seconds for completing one incomplete announcement.
_REST_SECONDS, _EACH_SECONDS = 2.0, 0.5

AsJson: TypeAlias = as_json_option("Print JSON, one cluster per line.")  # type: ignore[valid-type]


class NoDiscovery(Misconfigured):
    """The package for mDNS is not installed."""

    next = (
        "pip install 'threads-cluster[discovery]',"
        " or in a checkout: .venv/bin/pip install --require-hashes -r requirements/discovery.txt"
    )


def add_commands(app: typer.Typer) -> None:
    """Add the command to the `cluster` command."""
    app.command()(discover)


def discover(
    ctx: typer.Context,
    seconds: float = typer.Option(3.0, min=0.1, max=60.0, metavar="TIME", help="Seconds to listen for announcements."),
    as_json: AsJson = False,
) -> None:
    """List clusters that announce themselves on this network. A cluster announces itself only if its port is open."""
    found = clusters(seconds)
    none = (
        f"No cluster announced itself within {seconds:g} s. A cluster announces itself only if BIND is not loopback:"
        " docs/hosts.md"
    )
    show.listing(found, _COLUMNS, as_json=as_json, none=none)
    if found and not as_json:
        show.say(
            f"Announcements are not authenticated: check the address before you run: cluster login {found[0]['url']}"
        )


_COLUMNS: show.Columns = {
    "cluster": "url",
    "name": "name",
    "version": "version",
    "token": lambda row: "needed" if row["token_needed"] else "",
    "addresses": lambda row: " ".join(row["addresses"]),
}


def clusters(seconds: float = 3.0, interfaces: Sequence[str] = ()) -> list[Json]:
    """Listen for announcements, and return them as `{url, name, version, token_needed, addresses, port}`.

    `interfaces` are the addresses of this machine to listen on; by default all. The list is sorted by URL. Raises
    NoDiscovery if zeroconf is not installed, and ClientError if no network interface supports mDNS.
    """
    try:
        from zeroconf import DNSQuestionType, InterfaceChoice, ServiceBrowser, Zeroconf
    except ImportError:
        raise NoDiscovery("cannot search for clusters: the package zeroconf is not installed") from None
    try:
        network = Zeroconf(interfaces=list(interfaces) or InterfaceChoice.All)
    except OSError as error:
        raise ClientError(f"cannot search for clusters: {error}") from None
    try:
        heard = Listener()
        # Replies must be multicast, because a unicast reply reaches only one of the programs on the same port.
        ServiceBrowser(network, TYPE, handlers=[heard.change], question_type=DNSQuestionType.QM)
        time.sleep(seconds)
        until = time.monotonic() + _REST_SECONDS
        rows = [row for name in sorted(heard.names)[:_MOST] if (row := read_announcement(network, name, until))]
    finally:
        network.close()
    return sorted(rows, key=lambda row: str(row["url"]))


class Listener:
    """Collector of the names of clusters that announce themselves."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def change(self, *, name: str, state_change: Enum, **_more: Any) -> None:
        """Process one announcement. The package zeroconf calls this method from its own thread."""
        if state_change.name == "Removed":
            self.names.discard(name)
        elif len(self.names) < _MOST:
            self.names.add(name)


def read_announcement(network: Any, name: str, until: float) -> Json | None:
    """Read an announcement until the monotonic time `until`. Return None if it contains no usable address."""
    from zeroconf import DNSQuestionType, Error, ServiceInfo

    try:
        info = ServiceInfo(TYPE, name)
        left = min(_EACH_SECONDS, until - time.monotonic())
        whole = info.load_from_cache(network)
        if not (whole or (left > 0 and info.request(network, 1000 * left, DNSQuestionType.QM))):
            return None
    except Error:  # The name is not a valid service name
        return None
    addresses = sorted(info.parsed_addresses(), key=_address_order)
    if not addresses or not 0 < (info.port or 0) < 65536:
        return None
    facts = {key.decode(errors="replace"): _text(value) for key, value in info.properties.items()}
    host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    return {
        "url": f"{'https' if facts.get('tls') == '1' else 'http'}://{host}:{info.port}",
        "name": visible(name.removesuffix(f".{TYPE}"), _LONGEST),
        "version": facts.get("version", ""),
        "token_needed": facts.get("token") != "0",
        "addresses": addresses,
        "port": info.port,
    }


def _text(value: bytes | None) -> str:
    return visible((value or b"").decode(errors="replace"), _LONGEST)


def _address_order(address: str) -> tuple[bool, bool, str]:
    """Return a sort key for an address: IPv4 before IPv6, and link-local addresses last."""
    parsed = ipaddress.ip_address(address)
    return parsed.version == 6, parsed.is_link_local, address
