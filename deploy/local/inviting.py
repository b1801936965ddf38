"""`./deploy-cluster.sh invite`: opens the local cluster's door, and prints the command with which a machine joins."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass

from deploy.local import admin_token, authority, door, ports
from deploy.local.cluster import ADDRESS
from deploy.local.invitation import Invitation
from deploy.local.outcome import FAILED, NOT_READY, OK, USAGE, Trouble, say
from jobs.settings import Settings, load
from threads_cluster import numbers

#: The door's port, unless another was chosen or this one is taken.
PORT = 3443
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
    if not ADDRESS.is_file():
        raise Trouble(FAILED, "no local cluster of this checkout runs. Start one: ./deploy-cluster.sh local")
    opened = _open(asked)
    print(_command(asked, opened, _token(ADDRESS.read_text().strip(), seconds)), flush=True)
    say(f"It counts once, within {asked.ttl}. The other machine needs this version of the checkout, and to reach port"
        f" {opened.port} of {opened.names[0]}; nothing needs to reach it.")  # fmt: skip
    return OK


def _open(asked: Asked) -> door.Door:
    """Return the door, once it is open for the address that was asked for."""
    before = door.kept()
    first = asked.address or own_address()
    port = asked.port or (before.port if before else ports.next_free("0.0.0.0", PORT, "the door for other machines"))
    names = [first, *(name for name in (before.names if before else ()) if name != first)]
    authority.certify([*names, "127.0.0.1"])
    door.keep(port, names)
    _await_open(port)
    return door.Door(port, names)


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
    try:
        with urllib.request.urlopen(url, timeout=5, context=trust):
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
