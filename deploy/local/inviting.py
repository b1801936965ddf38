"""`./deploy-cluster.sh invite`: opens the local cluster's door, and prints the command with which a machine joins."""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address

from deploy.local import admin_token, authority, commands, door, ports
from deploy.local.cluster import ADDRESS
from deploy.local.invitation import Invitation
from deploy.local.outcome import FAILED, NOT_READY, OK, PORT_TAKEN, USAGE, Trouble, say
from jobs.settings import Settings, load
from threads_cluster import numbers

#: The door's port, unless another was chosen or this one is taken.
PORT = 3443
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,250}[A-Za-z0-9])?", re.ASCII)
#: A coordinator starts within this time.
_OPEN_SECONDS = 60.0
#: An address of documentation, to which nothing is sent: the system says from where it would.
_ELSEWHERE = ("192.0.2.1", 9)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Wishes for an invitation."""

    #: Name or address of this machine; empty: the one with which it reaches others.
    address: str = ""
    #: None: the door's, or a free one.
    port: int | None = None
    ttl: str = "1h"
    gpu: bool = False
    runner: bool = False


def invite(asked: Asked) -> int:
    """Print the command on stdout, and around it what a person wants to know on stderr. Returns the exit code."""
    seconds = numbers.seconds(asked.ttl)
    if not seconds:
        raise Trouble(USAGE, f"--ttl must be a number with s, m, h or d, as 1h; got {asked.ttl!r}")
    if not (commands.running() and ADDRESS.is_file()):
        raise Trouble(FAILED, "no local cluster of this checkout runs. Start one: ./deploy-cluster.sh local")
    opened = _open(asked)
    print(_command(asked, opened, _token(ADDRESS.read_text().strip(), seconds)), flush=True)
    say(f"It counts once, within {asked.ttl}. The other machine needs this version of the checkout, and to reach port"
        f" {opened.port} of {opened.names[0]}; nothing needs to reach it.")  # fmt: skip
    return OK


def _open(asked: Asked) -> door.Door:
    """Return the door, once it is open for the address that was asked for."""
    before = door.kept()
    first = checked(asked.address) if asked.address else own_address()
    port = _port(asked.port, before)
    names = [first, *(name for name in (before.names if before else ()) if name != first)]
    authority.certify([*names, door.LOOPBACK])
    door.keep(port, names)
    try:
        _await_open(port)
    except Trouble:
        if before:
            door.keep(*before)
        raise
    return door.Door(port, names)


def _port(asked: int | None, before: door.Door | None) -> int:
    """Return the door's port. Raises Trouble for one that is taken."""
    if before and asked in (None, before.port):
        return before.port
    if before:
        say(f"note: machines that have joined at port {before.port} must leave and join again.")
    if asked and not ports.free("0.0.0.0", asked):
        raise Trouble(PORT_TAKEN, f"port {asked} is taken by another program or may not be used; choose another")
    return asked or ports.next_free("0.0.0.0", PORT, "the door for other machines")


def checked(address: str) -> str:
    """Return an address as it is written, or a name. Raises Trouble for what is neither."""
    try:
        return str(ip_address(address.strip("[]")))
    except ValueError:
        if _NAME.fullmatch(address):
            return address
    raise Trouble(USAGE, f"--address must be a name or an address, without a port or a zone; got {address!r}")


def own_address() -> str:
    """Return the address with which this machine reaches others. Raises Trouble where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            raise Trouble(
                FAILED, "this machine has no route to others; say where they reach it: --address NAME"
            ) from None


def _await_open(port: int) -> None:
    """Wait until a coordinator serves this certificate. Raises Trouble."""
    trust = ssl.create_default_context(cafile=str(authority.CERTIFICATE))
    deadline = time.monotonic() + _OPEN_SECONDS
    while time.monotonic() < deadline:
        if _opens(f"https://127.0.0.1:{port}/health", trust):
            return
        time.sleep(0.2)
    raise Trouble(
        NOT_READY,
        f"the door did not open at port {port} within {_OPEN_SECONDS:.0f} s; its log is .cluster/logs/door.log",
    )


def _opens(url: str, trust: ssl.SSLContext) -> bool:
    here = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        with here.open(url, timeout=5):
            return True
    except (OSError, ValueError):
        return False


def _token(url: str, seconds: int) -> str:
    """Return a new token that lets one host join. Raises Trouble."""
    body = {"name": "invitation", "scopes": ["join"], "ttl_seconds": seconds}
    request = urllib.request.Request(
        f"{url}/api/tokens", json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {_owner(load())}"},
    )  # fmt: skip
    # Only this machine is asked: a proxy set for the internet must not catch it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return str(json.load(answer)["token"])
    except urllib.error.HTTPError as error:
        raise Trouble(FAILED, f"the cluster makes no invitation ({error.code}): {error.read(1000)!r}") from error
    except (OSError, ValueError, LookupError) as error:
        raise Trouble(FAILED, f"the cluster at {url} does not answer: {error}") from error


def _owner(settings: Settings) -> str:
    """Return a token of the scope admin: CLUSTER_TOKEN, else the one of this folder."""
    given = settings.cluster_tokens()
    with suppress(OSError):
        return given[0] if given else admin_token.FILE.read_text().strip()
    return ""


def _command(asked: Asked, opened: door.Door, token: str) -> str:
    fingerprint = authority.fingerprint(authority.ensure())
    text = Invitation(host=opened.names[0], port=opened.port, fingerprint=fingerprint, token=token)
    flags = " --gpu" * asked.gpu + " --runner" * asked.runner
    return f"./deploy-cluster.sh join {text}{flags}"
