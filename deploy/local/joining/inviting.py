"""Implementation of `./deploy-cluster.sh invite`, which prints a command with which another machine joins.

It opens the cluster's HTTPS port.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import httpx

from deploy.local import admin_token, commands, ports
from deploy.local.cluster import ADDRESS
from deploy.local.joining import authority, https_coordinator
from deploy.local.joining.invitation import Invitation
from deploy.local.outcome import FAILED, NOT_READY, OK, PORT_TAKEN, USAGE, CommandError, say
from jobs.hosts import labels
from jobs.settings import Settings, load
from threads_protocol import numbers

#: Default port of the cluster's HTTPS endpoint.
PORT = 3443
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,250}[A-Za-z0-9])?", re.ASCII)
#: Pattern of the ID of an invitation's token.
#: Pattern that finds the token's ID within an invitation.
_ID, _WITHIN = re.compile(r"([a-z0-9]{10})", re.ASCII), re.compile(r"/tc_([a-z0-9]{10})_", re.ASCII)
#: Timeout in seconds for opening the HTTPS endpoint.
_OPEN_SECONDS = 60.0
#: Address to which nothing is sent. Connecting a UDP socket to it reveals this machine's own address.
_DOCUMENTATION_ADDRESS = ("192.0.2.1", 9)


@dataclass(frozen=True, kw_only=True)
class InvitationOptions:
    """Options of the command invite."""

    #: Name or address of this machine. If empty, the address of the default route is used.
    address: str = ""
    #: Port of the HTTPS endpoint, or None for the current port or a free one.
    port: int | None = None
    ttl: str = "1h"
    gpu: bool = False
    runner: bool = False
    #: Labels of the host that joins, separated by commas. Tenants can require labels.
    labels: str = ""


def invite(asked: InvitationOptions) -> int:
    """Print the command for joining on stdout and explanations on stderr. Return the exit code."""
    seconds = numbers.parse_duration(asked.ttl)
    if not seconds:
        raise CommandError(USAGE, f"--ttl must be a number followed by s, m, h or d, such as 1h; got {asked.ttl!r}")
    given = _labels(asked.labels)
    if not (commands.is_running() and ADDRESS.is_file()):
        raise CommandError(FAILED, "no local cluster of this checkout is running. Start one: ./deploy-cluster.sh local")
    opened = _open_endpoint(asked)
    token = _create_token(ADDRESS.read_text().strip(), seconds, given)
    print(_command(asked, opened, token), flush=True)
    say(
        f"The invitation is valid once, for {asked.ttl}. The other machine needs this version of the checkout and a"
        f" connection to port {opened.port} of {opened.names[0]}. No connection to the other machine is needed."
        f" To revoke the invitation: ./deploy-cluster.sh invite --close {token.split('_')[1]}"
    )
    return OK


def close(given: str, url: str = "") -> int:
    """Revoke an invitation that was not used. The argument is the invitation's ID or its text.

    Returns the exit code. Raises CommandError. `url` is the address of the cluster; empty for the local cluster.
    """
    named = _ID.fullmatch(given.strip()) or _WITHIN.search(given)
    if named is None:
        raise CommandError(
            USAGE, "--close needs an invitation or its ID, the ten characters after `tc_`, such as bafea6lvu2"
        )
    if not url and not (commands.is_running() and ADDRESS.is_file()):
        raise CommandError(FAILED, "no local cluster of this checkout is running. Start one: ./deploy-cluster.sh local")
    tokens = f"{url or ADDRESS.read_text().strip()}/api/tokens"
    invitation = named[1]
    scopes = {row["id"]: row["scopes"] for row in request_as_admin("GET", tokens)["tokens"]}.get(invitation)
    if scopes is None:
        raise CommandError(
            FAILED,
            f"there is no invitation {invitation}: it was used, has expired or was closed. List the tokens of"
            " joined machines: cluster token list",
        )
    if scopes != ["join"]:
        raise CommandError(
            FAILED,
            f"{invitation} is not an invitation but another token. To revoke it: cluster token revoke {invitation}",
        )
    request_as_admin("DELETE", f"{tokens}/{invitation}")
    say(f"The invitation {invitation} is no longer valid.")
    return OK


def _open_endpoint(asked: InvitationOptions) -> https_coordinator.Endpoint:
    """Open the HTTPS endpoint at the address that the user requested. Return its port and names."""
    before = https_coordinator.load_endpoint()
    first = validate_address(asked.address) if asked.address else own_address()
    port = _port(asked.port, before)
    names = [first, *(name for name in (before.names if before else ()) if name != first)]
    authority.certify([*names, https_coordinator.LOOPBACK])
    https_coordinator.store_endpoint(port, names)
    try:
        _wait_until_open(port)
    except CommandError:
        if before:
            https_coordinator.store_endpoint(*before)
        raise
    return https_coordinator.Endpoint(port, names)


def _port(asked: int | None, before: https_coordinator.Endpoint | None) -> int:
    """Return the port for the HTTPS endpoint. Raises CommandError if the port that the user requested is in use."""
    if before and asked in (None, before.port):
        return before.port
    if before:
        say(f"note: machines that joined through port {before.port} must leave and join again.")
    if asked and not ports.is_free("0.0.0.0", asked):
        raise CommandError(
            PORT_TAKEN, f"port {asked} is in use by another program, or is not permitted; choose another port"
        )
    return asked or ports.next_free("0.0.0.0", PORT, "the HTTPS endpoint for other machines")


def validate_address(address: str) -> str:
    """Return a normalized IP address or a host name. Raises CommandError if the text is neither."""
    try:
        return str(ip_address(address.strip("[]")))
    except ValueError:
        if _NAME.fullmatch(address):
            return address
    raise CommandError(USAGE, f"--address must be a name or an address, without a port or a zone; got {address!r}")


def own_address() -> str:
    """Return the address of this machine for outgoing connections. Raises CommandError if there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_DOCUMENTATION_ADDRESS)
            return str(probe.getsockname()[0])
        except OSError:
            raise CommandError(
                FAILED, "this machine has no route to other machines; name its address with --address NAME"
            ) from None


def _wait_until_open(port: int) -> None:
    """Wait until a coordinator serves the current certificate. Raises CommandError after a timeout."""
    trust = ssl.create_default_context(cafile=str(authority.CERTIFICATE))
    deadline = time.monotonic() + _OPEN_SECONDS
    while time.monotonic() < deadline:
        if _is_open(f"https://127.0.0.1:{port}/health", trust):
            return
        time.sleep(0.2)
    raise CommandError(
        NOT_READY,
        f"the HTTPS endpoint did not open port {port} within {_OPEN_SECONDS:.0f} s; its log is .cluster/logs/door.log",
    )


def _is_open(url: str, trust: ssl.SSLContext) -> bool:
    try:
        return httpx.get(url, timeout=5, verify=trust, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _labels(text: str) -> list[str]:
    """Parse the labels of an invitation. Raises CommandError for an invalid label or too many labels."""
    given = sorted({label.strip() for label in text.split(",") if label.strip()})
    wrong = [label for label in given if not re.fullmatch(labels.PATTERN, label)]
    if wrong or len(given) > labels.MAX_LABELS:
        raise CommandError(
            USAGE,
            f"--labels must be a comma-separated list of up to {labels.MAX_LABELS} labels, each with up to 64"
            f" letters, digits and . _ : / -; got {(wrong or [text])[0][:80]!r}",
        )
    return given


def _create_token(url: str, seconds: int, given: Sequence[str]) -> str:
    """Create a token with which one host can join, and return it. Raises CommandError."""
    body = {"name": "invitation", "scopes": ["join"], "ttl_seconds": seconds} | ({"labels": given} if given else {})
    token: str = request_as_admin("POST", f"{url}/api/tokens", body)["token"]
    return token


def request_as_admin(method: str, url: str, body: Any = None) -> Any:
    """Send a request with the admin token, and return the JSON response or None. Raises CommandError."""
    owner = _admin_token(load())
    headers = {"Authorization": f"Bearer {owner}"} if owner else {}
    try:
        # All requests go to this machine, so proxy settings for the internet are ignored.
        answer = httpx.request(method, url, json=body, headers=headers, timeout=10, trust_env=False)
        if answer.is_error:
            raise CommandError(
                FAILED, f"the cluster rejected the request with HTTP {answer.status_code}: {answer.content[:1000]!r}"
            )
        return answer.json() if answer.content else None
    except (httpx.HTTPError, ValueError) as error:
        raise CommandError(FAILED, f"the cluster at {url} does not answer: {error}") from error


def _admin_token(settings: Settings) -> str:
    """Return an admin token from CLUSTER_TOKEN or from a file of this checkout."""
    given = settings.cluster_tokens()
    with suppress(OSError):
        return given[0] if given else admin_token.FILE.read_text().strip()
    return ""


def _command(asked: InvitationOptions, opened: https_coordinator.Endpoint, token: str) -> str:
    fingerprint = authority.fingerprint(authority.ensure())
    text = Invitation(host=opened.names[0], port=opened.port, fingerprint=fingerprint, token=token)
    flags = " --gpu" * asked.gpu + " --runner" * asked.runner
    return f"./deploy-cluster.sh join {text}{flags}"
