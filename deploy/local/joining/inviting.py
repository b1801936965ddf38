"""Implementation of `./deploy-cluster.sh invite`, which prints a line with which another machine joins.

It opens the cluster's HTTPS port.
"""

from __future__ import annotations

import hashlib
import re
import shlex
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
from deploy.local.joining import authority, https_coordinator, installation
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
#: Timeout in seconds for opening the HTTPS endpoint, and for building the installer.
_OPEN_SECONDS, _BUILD_SECONDS = 60.0, 120.0
#: Address to which nothing is sent. Connecting a UDP socket to it reveals this machine's own address.
_DOCUMENTATION_ADDRESS = ("192.0.2.1", 9)
#: Program of the printed line, for Python 3.6 or later. Its arguments are HOST:PORT/FINGERPRINT, the SHA-256 digest of
#: the installer, and options of `join`. It trusts only the authority with this fingerprint, and runs only the installer
#: with this digest. Like workers, it uses no proxy.
LINE = (
    "import hashlib,ssl,sys,urllib.request as u;"
    'sys.excepthook=lambda t,e,b:print("error: cannot join "+a+":",str(e)or t.__name__,file=sys.stderr);'
    'a,f=sys.argv[1].split("/");'
    "d=lambda b,s,t:b if hashlib.sha256(b).hexdigest()==s else sys.exit("
    '"error: the "+t+" at "+a+" does not match this line: the cluster has changed, so get a new line with invite; or'
    ' another machine answers there. Nothing was installed.");'
    "g=lambda p,c:u.build_opener(u.ProxyHandler({}),u.HTTPSHandler(context=c))"
    '.open("https://"+a+p,None,30).read(99999);'
    'k=g("/api/authority",ssl._create_unverified_context()).decode();'
    'trust=ssl.create_default_context(cadata=d(ssl.PEM_cert_to_DER_cert(k),f,"certificate authority"));'
    'exec(d(g("/join",trust),sys.argv[2],"installer"))'
)


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
    #: True to print only the invitation's text HOST:PORT/FINGERPRINT/TOKEN.
    only_text: bool = False


def invite(asked: InvitationOptions) -> int:
    """Print the command for joining on stdout and explanations on stderr. Return the exit code."""
    seconds = numbers.parse_duration(asked.ttl)
    if not seconds:
        raise CommandError(USAGE, f"--ttl must be a number followed by s, m, h or d, such as 1h; got {asked.ttl!r}")
    given = _labels(asked.labels)
    if not (commands.is_running() and ADDRESS.is_file()):
        raise CommandError(FAILED, "no local cluster of this checkout is running. Start one: ./deploy-cluster.sh local")
    opened = _open_endpoint(asked)
    digest = "" if asked.only_text else _wait_for_installer(opened.port)
    invitation = Invitation(
        host=opened.names[0],
        port=opened.port,
        fingerprint=authority.fingerprint(authority.ensure()),
        token=_create_token(ADDRESS.read_text().strip(), seconds, given),
    )
    if asked.only_text:
        print(invitation, flush=True)
    else:
        _print_line(asked, invitation, digest)
    return OK


def _print_line(asked: InvitationOptions, invitation: Invitation, digest: str) -> None:
    """Print the line and the token on stdout, and explanations on stderr."""
    options = ["--gpu"] * asked.gpu + ["--runner"] * asked.runner
    say("Run this line on the other machine, which needs Python 3.11 or later:\n")
    print(format_line(invitation, digest, options), flush=True)
    say("\nWhen it asks for the token, paste:\n")
    print(invitation.token, flush=True)
    say(
        f"\nThe invitation is valid once, for {asked.ttl}. The other machine connects to port {invitation.port} of"
        f" {invitation.host}; no connection to the other machine is needed.\n"
        f"In a checkout of this version, {format_line(invitation, '', options)} does the same.\n"
        f"To revoke the invitation: ./deploy-cluster.sh invite --close {invitation.token.split('_')[1]}"
    )


def format_line(invitation: Invitation, digest: str, options: Sequence[str]) -> str:
    """Return the line with which a machine joins. `digest` is the SHA-256 digest of the installer.

    Without an installer, the line works only in a checkout.
    """
    start = (
        ["python3", "-c", LINE, invitation.pinned, digest]
        if digest
        else ["./deploy-cluster.sh", "join", invitation.pinned]
    )
    return shlex.join([*start, *options])


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


def _wait_for_installer(port: int) -> str:
    """Wait until the endpoint serves the installer, and return its SHA-256 digest.

    Return "" if the wheel cannot be built. Raises CommandError after a timeout.
    """
    trust = ssl.create_default_context(cafile=str(authority.CERTIFICATE))
    deadline = time.monotonic() + _BUILD_SECONDS
    while time.monotonic() < deadline:
        with suppress(httpx.HTTPError):
            answer = httpx.get(f"https://127.0.0.1:{port}/join", timeout=5, verify=trust, trust_env=False)
            if answer.is_success:
                return hashlib.sha256(answer.content).hexdigest()
        if reason := installation.read_error():
            say(f"note: only a machine with a checkout of this version can join, because {reason}")
            return ""
        time.sleep(0.2)
    raise CommandError(
        NOT_READY,
        f"the installer for other machines was not built within {_BUILD_SECONDS:.0f} s; its log is"
        " .cluster/logs/door.log",
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
