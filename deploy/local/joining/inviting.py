"""`./deploy-cluster.sh invite`: opens the local cluster's door, and prints the command with which a machine joins."""

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
from deploy.local.joining import authority, door
from deploy.local.joining.invitation import Invitation
from deploy.local.outcome import FAILED, NOT_READY, OK, PORT_TAKEN, USAGE, CommandError, say
from jobs.hosts import labels
from jobs.settings import Settings, load
from threads_protocol import numbers

#: The door's port, unless another was chosen or this one is taken.
PORT = 3443
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,250}[A-Za-z0-9])?", re.ASCII)
#: Id of an invitation's token, by itself and within it.
_ID, _WITHIN = re.compile(r"([a-z0-9]{10})", re.ASCII), re.compile(r"/tc_([a-z0-9]{10})_", re.ASCII)
#: A coordinator starts within this time.
_OPEN_SECONDS = 60.0
#: An address of documentation, to which nothing is sent: the system says from where it would.
_ELSEWHERE = ("192.0.2.1", 9)


@dataclass(frozen=True, kw_only=True)
class InvitationOptions:
    """Wishes for an invitation."""

    #: Name or address of this machine; empty: the one with which it reaches others.
    address: str = ""
    #: None: the door's, or a free one.
    port: int | None = None
    ttl: str = "1h"
    gpu: bool = False
    runner: bool = False
    #: Labels of the host that joins, with commas between: tenants may require them.
    labels: str = ""


def invite(asked: InvitationOptions) -> int:
    """Print the command on stdout, and around it what a person wants to know on stderr. Returns the exit code."""
    seconds = numbers.seconds(asked.ttl)
    if not seconds:
        raise CommandError(USAGE, f"--ttl must be a number with s, m, h or d, as 1h; got {asked.ttl!r}")
    given = _labels(asked.labels)
    if not (commands.running() and ADDRESS.is_file()):
        raise CommandError(FAILED, "no local cluster of this checkout runs. Start one: ./deploy-cluster.sh local")
    opened = _open(asked)
    token = _token(ADDRESS.read_text().strip(), seconds, given)
    print(_command(asked, opened, token), flush=True)
    say(
        f"It counts once, within {asked.ttl}. The other machine needs this version of the checkout, and to reach port"
        f" {opened.port} of {opened.names[0]}; nothing needs to reach it."
        f" To end it before: ./deploy-cluster.sh invite --close {token.split('_')[1]}"
    )
    return OK


def close(given: str, url: str = "") -> int:
    """End an invitation before its time, by its id or the invitation itself.

    Returns the exit code. Raises CommandError.

    url: address of the cluster; empty: the local one's.
    """
    named = _ID.fullmatch(given.strip()) or _WITHIN.search(given)
    if named is None:
        raise CommandError(
            USAGE, "--close needs an invitation, or its id: the ten characters behind tc_ in it, as bafea6lvu2"
        )
    if not url and not (commands.running() and ADDRESS.is_file()):
        raise CommandError(FAILED, "no local cluster of this checkout runs. Start one: ./deploy-cluster.sh local")
    tokens = f"{url or ADDRESS.read_text().strip()}/api/tokens"
    invitation = named[1]
    scopes = {row["id"]: row["scopes"] for row in request_as_admin("GET", tokens)["tokens"]}.get(invitation)
    if scopes is None:
        raise CommandError(
            FAILED,
            f"there is no invitation {invitation}: it was used, has expired or was closed. Tokens of"
            " machines that have joined: cluster token list",
        )
    if scopes != ["join"]:
        raise CommandError(
            FAILED,
            f"{invitation} is a token of another sort, which goes on. To end it: cluster token revoke {invitation}",
        )
    request_as_admin("DELETE", f"{tokens}/{invitation}")
    say(f"The invitation {invitation} counts no more.")
    return OK


def _open(asked: InvitationOptions) -> door.Door:
    """Return the door, once it is open for the address that was asked for."""
    before = door.kept()
    first = validate_address(asked.address) if asked.address else own_address()
    port = _port(asked.port, before)
    names = [first, *(name for name in (before.names if before else ()) if name != first)]
    authority.certify([*names, door.LOOPBACK])
    door.keep(port, names)
    try:
        _await_open(port)
    except CommandError:
        if before:
            door.keep(*before)
        raise
    return door.Door(port, names)


def _port(asked: int | None, before: door.Door | None) -> int:
    """Return the door's port. Raises CommandError for one that is taken."""
    if before and asked in (None, before.port):
        return before.port
    if before:
        say(f"note: machines that have joined at port {before.port} must leave and join again.")
    if asked and not ports.is_free("0.0.0.0", asked):
        raise CommandError(PORT_TAKEN, f"port {asked} is taken by another program or may not be used; choose another")
    return asked or ports.next_free("0.0.0.0", PORT, "the door for other machines")


def validate_address(address: str) -> str:
    """Return an address as it is written, or a name. Raises CommandError for what is neither."""
    try:
        return str(ip_address(address.strip("[]")))
    except ValueError:
        if _NAME.fullmatch(address):
            return address
    raise CommandError(USAGE, f"--address must be a name or an address, without a port or a zone; got {address!r}")


def own_address() -> str:
    """Return the address with which this machine reaches others. Raises CommandError where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            raise CommandError(
                FAILED, "this machine has no route to others; say where they reach it: --address NAME"
            ) from None


def _await_open(port: int) -> None:
    """Wait until a coordinator serves this certificate. Raises CommandError."""
    trust = ssl.create_default_context(cafile=str(authority.CERTIFICATE))
    deadline = time.monotonic() + _OPEN_SECONDS
    while time.monotonic() < deadline:
        if _opens(f"https://127.0.0.1:{port}/health", trust):
            return
        time.sleep(0.2)
    raise CommandError(
        NOT_READY,
        f"the door did not open at port {port} within {_OPEN_SECONDS:.0f} s; its log is .cluster/logs/door.log",
    )


def _opens(url: str, trust: ssl.SSLContext) -> bool:
    try:
        return httpx.get(url, timeout=5, verify=trust, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _labels(text: str) -> list[str]:
    """Return the labels that were asked for. Raises CommandError for what is none, and for too many."""
    given = sorted({label.strip() for label in text.split(",") if label.strip()})
    wrong = [label for label in given if not re.fullmatch(labels.PATTERN, label)]
    if wrong or len(given) > labels.MOST:
        raise CommandError(
            USAGE,
            f"--labels must be at most {labels.MOST} labels with commas between, each of at most 64"
            f" letters, digits and . _ : / -; got {(wrong or [text])[0][:80]!r}",
        )
    return given


def _token(url: str, seconds: int, given: Sequence[str]) -> str:
    """Return a new token that lets one host join, which will have these labels. Raises CommandError."""
    body = {"name": "invitation", "scopes": ["join"], "ttl_seconds": seconds} | ({"labels": given} if given else {})
    token: str = request_as_admin("POST", f"{url}/api/tokens", body)["token"]
    return token


def request_as_admin(method: str, url: str, body: Any = None) -> Any:
    """Return what the cluster answers to its owner; None for nothing. Raises CommandError."""
    owner = _owner(load())
    headers = {"Authorization": f"Bearer {owner}"} if owner else {}
    try:
        # Only this machine is asked: a proxy set for the internet must not catch it.
        answer = httpx.request(method, url, json=body, headers=headers, timeout=10, trust_env=False)
        if answer.is_error:
            raise CommandError(FAILED, f"the cluster refuses this ({answer.status_code}): {answer.content[:1000]!r}")
        return answer.json() if answer.content else None
    except (httpx.HTTPError, ValueError) as error:
        raise CommandError(FAILED, f"the cluster at {url} does not answer: {error}") from error


def _owner(settings: Settings) -> str:
    """Return a token of the scope admin: CLUSTER_TOKEN, else the one of this folder."""
    given = settings.cluster_tokens()
    with suppress(OSError):
        return given[0] if given else admin_token.FILE.read_text().strip()
    return ""


def _command(asked: InvitationOptions, opened: door.Door, token: str) -> str:
    fingerprint = authority.fingerprint(authority.ensure())
    text = Invitation(host=opened.names[0], port=opened.port, fingerprint=fingerprint, token=token)
    flags = " --gpu" * asked.gpu + " --runner" * asked.runner
    return f"./deploy-cluster.sh join {text}{flags}"
