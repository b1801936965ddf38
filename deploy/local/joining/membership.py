"""Membership of this checkout in the cluster of another machine: its files in .cluster/joined, and API calls."""

from __future__ import annotations

import hmac
import json
import os
import shutil
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from deploy.local import user_contexts
from deploy.local.joining import authority
from deploy.local.joining.invitation import PUBLIC, Invitation
from deploy.local.outcome import FAILED, USAGE, CommandError, say
from jobs import VERSION, causes
from jobs.settings import LOCAL_FOLDER
from jobs.store.tenancy import tokens

FOLDER = LOCAL_FOLDER / "joined"
_HOST, _AUTHORITY, _TOKENS = FOLDER / "host.json", FOLDER / "authority.pem", FOLDER / "tokens"
_SECONDS = 20.0
#: Maximum size in bytes of a certificate.
_MAX_CERTIFICATE_BYTES = 1 << 16


class CannotReach(Exception):
    """No cluster that this machine trusts answers at the address. The message contains the reason."""


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Membership of a host in a cluster."""

    #: URL of the cluster's API.
    url: str
    name: str
    #: Names of the workers on this host.
    workers: list[str]
    #: Number of lanes of each CPU worker, or 0 for the number of usable cores.
    lanes: int
    labels: str
    #: True if this host trusts only the authority of the cluster.
    pinned: bool

    @property
    def authority(self) -> str:
        """Return the path of the only trusted authority's certificate. If it is empty, the system's authorities are
        trusted.
        """
        return str(_AUTHORITY) if self.pinned else ""


def token(worker: str) -> str:
    """Return the token of a worker, or "" if there is none."""
    try:
        return (_TOKENS / worker).read_text().strip()
    except OSError:
        return ""


def load() -> Membership | None:
    """Return the stored membership, or None if this checkout has not joined a cluster."""
    try:
        return Membership(**json.loads(_HOST.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CommandError(
            FAILED, f"cannot read {_HOST} ({error}); delete the membership with ./deploy-cluster.sh leave --anyway"
        ) from None


def join(invitation: Invitation, name: str, workers: Sequence[str], *, lanes: int, labels: str) -> Membership:
    """Exchange an invitation for worker tokens, and store the membership. Raises CommandError.

    The files are allocated on the disk before the invitation is used up.
    """
    named = [f"{name}-{worker}" for worker in workers]
    made = Membership(
        url=invitation.url,
        name=name,
        workers=named,
        lanes=lanes,
        labels=labels,
        pinned=invitation.fingerprint != PUBLIC,
    )
    authority_text = b"" if invitation.fingerprint == PUBLIC else fetch_pinned_authority(invitation)
    try:
        _allocate_files(made, authority_text)
    except OSError as error:
        delete_membership()
        why = f"cannot write to {FOLDER}: {error.strerror}"
        raise CommandError(FAILED, f"{why}. Nothing was sent, and the invitation is still valid") from None
    answer = exchange_invitation(invitation, name, workers)
    given = parse_tokens(answer, named, invitation.url)
    if answer.get("version") != VERSION:
        say(f"note: the cluster has version {answer.get('version')}, this checkout {VERSION}; some jobs may not run")
    try:
        for worker, text in given.items():
            store_token(worker, text)
        # The file _HOST is written last, because it marks the host as joined.
        _new_host_file().replace(_HOST)
    except OSError as error:
        left = revoke_tokens(made, given)
        delete_membership()
        also = f"; these tokens are still valid there: {', '.join(left)}" if left else ""
        raise CommandError(
            FAILED, f"cannot write to {FOLDER}: {error.strerror}. The invitation is used up{also}"
        ) from None
    _use_tokens(made, given.values())
    user_contexts.keep_at(made.url, made.authority)
    return made


def _use_tokens(made: Membership, given: Iterable[str]) -> None:
    """Send a request with each token. The cluster treats tokens without requests as remains of a failed join."""
    with suppress(CannotReach):
        for text in given:
            send_request("POST", f"{made.url}/api/worker/register", text, made.authority, {})


def _new_host_file() -> Path:
    return _HOST.with_suffix(".new")


def _allocate_files(made: Membership, authority_text: bytes) -> None:
    """Allocate disk space for all files of the membership. Dots are placeholders for tokens. Raises OSError."""
    shutil.rmtree(FOLDER, ignore_errors=True)  # Deletes files of an unfinished join
    _TOKENS.mkdir(mode=0o700, parents=True)
    if authority_text:
        _AUTHORITY.write_bytes(authority_text)
    for worker in made.workers:
        store_token(worker, "." * len(tokens.mint().text))
    _new_host_file().write_text(json.dumps(asdict(made), indent=1))


def parse_tokens(answer: dict[str, Any], wanted: Sequence[str], url: str) -> dict[str, str]:
    """Return the token of each worker from the response to an invitation.

    Raises CommandError unless the response contains exactly the requested workers.
    """
    try:
        given = {str(one["worker"]): str(one["token"]) for one in answer["workers"]}
    except (LookupError, TypeError):
        given = {}
    if sorted(given) != sorted(wanted) or not all(map(tokens.parse_credential, given.values())):
        raise CommandError(FAILED, f"{url} did not return exactly the requested workers; nothing was stored")
    return {worker: given[worker] for worker in wanted}


def store_token(worker: str, text: str) -> None:
    path = _TOKENS / Path(worker).name
    path.touch(mode=0o600)
    with path.open("r+") as file:  # Disk space for the file is already allocated
        file.write(f"{text}\n")
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def fetch_pinned_authority(invitation: Invitation) -> bytes:
    """Fetch the authority's certificate, and return it if it matches the fingerprint in the invitation.

    The connection is not verified. Raises CommandError.
    """
    untrusting = ssl.create_default_context()
    untrusting.check_hostname, untrusting.verify_mode = False, ssl.CERT_NONE
    try:
        certificate = x509.load_pem_x509_certificate(fetch_authority(invitation.url, untrusting))
    except (httpx.HTTPError, OSError, ValueError) as error:
        raise CommandError(
            FAILED,
            f"no cluster with invitations answers at {invitation.url}: {_describe_error(error)}.\n"
            "  Check the address, that the cluster is running, and that no firewall blocks the port.",
        ) from None
    if not hmac.compare_digest(authority.fingerprint(certificate), invitation.fingerprint):
        raise CommandError(
            FAILED,
            f"the authority at {invitation.url} does not match the invitation: another cluster answers there, or"
            " somebody intercepts the connection. Nothing was sent",
        )
    # Other certificates in the response are ignored.
    return certificate.public_bytes(serialization.Encoding.PEM)


def fetch_authority(url: str, trust: ssl.SSLContext) -> bytes:
    """Fetch the certificate of a cluster's authority, up to the maximum size."""
    with open_http(trust) as http, http.stream("GET", f"{url}/api/authority") as answer:
        if answer.is_error:
            raise OSError(f"HTTP Error {answer.status_code}: {answer.reason_phrase}")
        return next(answer.iter_bytes(_MAX_CERTIFICATE_BYTES), b"")


def exchange_invitation(invitation: Invitation, name: str, workers: Sequence[str]) -> dict[str, Any]:
    """Send an invitation to the cluster and return the response. Raises CommandError with the cluster's message."""
    trust = str(_AUTHORITY) if _AUTHORITY.is_file() else ""
    body = {"host": name, "workers": list(workers)}
    try:
        status, answer = send_request("POST", f"{invitation.url}/api/join", invitation.token, trust, body)
    except CannotReach as error:
        raise CommandError(
            FAILED,
            f"cannot join {invitation.url}: {error}.\n  Try again. If the invitation was used up meanwhile, create"
            " another"
            " with ./deploy-cluster.sh invite",
        ) from error
    if status == HTTPStatus.UNAUTHORIZED:
        raise CommandError(
            FAILED, "this invitation was used or has expired; create another with ./deploy-cluster.sh invite"
        )
    if status != HTTPStatus.CREATED:
        said = answer.get("detail") or f"HTTP {status}"
        raise CommandError(
            USAGE if status == HTTPStatus.CONFLICT else FAILED, f"{invitation.url} does not accept this machine: {said}"
        )
    return answer


def send_request(method: str, url: str, bearer: str, trust: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    """Send a request, and return the status and the JSON object of the response. Raises CannotReach."""
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    try:
        with open_http(ssl.create_default_context(cafile=trust or None)) as http:
            answer = http.request(method, url, json=body, headers=headers)
            return answer.status_code, _object(answer.content)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise CannotReach(_describe_error(error)) from error


def open_http(trust: ssl.SSLContext) -> httpx.Client:
    """Return an HTTP client for requests to the cluster.

    It follows no redirects, which could send the token elsewhere. Like workers, it uses no proxy.
    """
    return httpx.Client(verify=trust, timeout=_SECONDS, trust_env=False)


def _object(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content or b"{}")
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _describe_error(error: Exception) -> str:
    cause = causes.system_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the invitation's authority did not sign the certificate ({cause.verify_message}); also check this"
            " machine's clock"
        )
    return str(error) or type(error).__name__


def revoke_host_tokens(membership: Membership) -> list[str]:
    """Revoke the tokens of this host's workers. Return a line for each token that is still valid."""
    return revoke_tokens(membership, {worker: token(worker) for worker in membership.workers})


def revoke_tokens(membership: Membership, given: Mapping[str, str]) -> list[str]:
    """Revoke several tokens, keyed by worker. Return a line for each token that is still valid."""
    left = []
    for worker, text in given.items():
        known = tokens.parse_credential(text)
        if known is None:
            left.append(f"{worker}: its token file is missing")
            continue
        try:
            status, _ = send_request(
                "DELETE", f"{membership.url}/api/tokens/{known.id}", known.text, membership.authority
            )
        except CannotReach as error:
            left.append(f"{worker}: {error}")
            continue
        if status not in (HTTPStatus.NO_CONTENT, HTTPStatus.UNAUTHORIZED):  # 401: already revoked
            left.append(f"{worker}: the cluster answered HTTP {status}")
    return left


def delete_membership() -> None:
    """Delete the files of the membership, and the context of the cluster."""
    user_contexts.delete(FOLDER)
    shutil.rmtree(FOLDER, ignore_errors=True)
