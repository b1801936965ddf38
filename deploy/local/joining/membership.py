"""Membership of this checkout in a cluster elsewhere: what .cluster/joined keeps, and the calls that it makes there."""

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

from deploy.local.joining import authority
from deploy.local.joining.invitation import PUBLIC, Invitation
from deploy.local.outcome import FAILED, USAGE, CommandError, say
from jobs import VERSION, causes
from jobs.settings import LOCAL_FOLDER
from jobs.store.tenancy import tokens

FOLDER = LOCAL_FOLDER / "joined"
_HOST, _AUTHORITY, _TOKENS = FOLDER / "host.json", FOLDER / "authority.pem", FOLDER / "tokens"
_SECONDS = 20.0
#: Bytes of a certificate at most.
_MOST = 1 << 16


class CannotReach(Exception):
    """Nothing that is trusted answers; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Membership:
    """A host that has joined."""

    #: Address of the cluster's API.
    url: str
    name: str
    #: Workers of this host, by the name of each.
    workers: list[str]
    #: Lanes of each CPU worker; 0: the cores that it may use.
    lanes: int
    labels: str
    #: Whether the authority that is kept is trusted alone.
    pinned: bool

    @property
    def authority(self) -> str:
        """File with the authority that alone is trusted; empty: those of the system."""
        return str(_AUTHORITY) if self.pinned else ""


def token(worker: str) -> str:
    """Return a worker's token; empty: there is none."""
    try:
        return (_TOKENS / worker).read_text().strip()
    except OSError:
        return ""


def load() -> Membership | None:
    """Return what this checkout has joined; None: nothing."""
    try:
        return Membership(**json.loads(_HOST.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CommandError(
            FAILED, f"{_HOST} cannot be read ({error}); ./deploy-cluster.sh leave --anyway forgets it"
        ) from None


def join(invitation: Invitation, name: str, workers: Sequence[str], *, lanes: int, labels: str) -> Membership:
    """Exchange the invitation and keep what comes of it. Raises CommandError.

    What is kept has its room on the disk before the invitation is used up.
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
        _make_room(made, authority_text)
    except OSError as error:
        forget()
        why = f"{FOLDER} cannot be written: {error.strerror}"
        raise CommandError(FAILED, f"{why}. Nothing was sent, and the invitation still counts") from None
    answer = exchange_invitation(invitation, name, workers)
    given = parse_tokens(answer, named, invitation.url)
    if answer.get("version") != VERSION:
        say(f"note: the cluster has version {answer.get('version')}, this checkout {VERSION}; not all jobs suit both")
    try:
        for worker, text in given.items():
            keep_token(worker, text)
        # Last: with this file the host has joined.
        _new_host().replace(_HOST)
    except OSError as error:
        left = revoke_tokens(made, given)
        forget()
        also = f"; these tokens still count there: {', '.join(left)}" if left else ""
        raise CommandError(
            FAILED, f"{FOLDER} cannot be written: {error.strerror}. The invitation is used up{also}"
        ) from None
    _use(made, given.values())
    return made


def _use(made: Membership, given: Iterable[str]) -> None:
    """Use each token once: one that never is is taken for that of a join which broke off."""
    with suppress(CannotReach):
        for text in given:
            ask("POST", f"{made.url}/api/worker/register", text, made.authority, {})


def _new_host() -> Path:
    return _HOST.with_suffix(".new")


def _make_room(made: Membership, authority_text: bytes) -> None:
    """Write all that will be kept, with dots in the place of tokens. Raises OSError."""
    shutil.rmtree(FOLDER, ignore_errors=True)  # what a join that broke off has left
    _TOKENS.mkdir(mode=0o700, parents=True)
    if authority_text:
        _AUTHORITY.write_bytes(authority_text)
    for worker in made.workers:
        keep_token(worker, "." * len(tokens.mint().text))
    _new_host().write_text(json.dumps(asdict(made), indent=1))


def parse_tokens(answer: dict[str, Any], wanted: Sequence[str], url: str) -> dict[str, str]:
    """Return the token of each worker.

    Raises CommandError for others than were asked for: what runs here is said here.
    """
    try:
        given = {str(one["worker"]): str(one["token"]) for one in answer["workers"]}
    except (LookupError, TypeError):
        given = {}
    if sorted(given) != sorted(wanted) or not all(map(tokens.parsed, given.values())):
        raise CommandError(FAILED, f"{url} answers with other workers than were asked for; nothing was kept")
    return {worker: given[worker] for worker in wanted}


def keep_token(worker: str, text: str) -> None:
    path = _TOKENS / Path(worker).name
    path.touch(mode=0o600)
    with path.open("r+") as file:  # in place: its room is there
        file.write(f"{text}\n")
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def fetch_pinned_authority(invitation: Invitation) -> bytes:
    """Return the authority's certificate, whoever answers, if it has the invitation's fingerprint.

    Raises CommandError.
    """
    untrusting = ssl.create_default_context()
    untrusting.check_hostname, untrusting.verify_mode = False, ssl.CERT_NONE
    try:
        certificate = x509.load_pem_x509_certificate(fetch_authority(invitation.url, untrusting))
    except (httpx.HTTPError, OSError, ValueError) as error:
        raise CommandError(
            FAILED,
            f"{invitation.url} does not answer as a cluster that invites: {_why(error)}.\n"
            "  Is the address right, does that cluster run, and does a firewall let its port through?",
        ) from None
    if not hmac.compare_digest(authority.fingerprint(certificate), invitation.fingerprint):
        raise CommandError(
            FAILED,
            f"the authority at {invitation.url} is not the one of the invitation: another cluster answers there, or"
            " somebody between here and there. Nothing was sent to it",
        )
    # That one alone: more may follow it.
    return certificate.public_bytes(serialization.Encoding.PEM)


def fetch_authority(url: str, trust: ssl.SSLContext) -> bytes:
    """Return the first bytes of what a cluster says its authority is."""
    with client(trust) as http, http.stream("GET", f"{url}/api/authority") as answer:
        if answer.is_error:
            raise OSError(f"HTTP Error {answer.status_code}: {answer.reason_phrase}")
        return next(answer.iter_bytes(_MOST), b"")


def exchange_invitation(invitation: Invitation, name: str, workers: Sequence[str]) -> dict[str, Any]:
    """Return the answer to an invitation. Raises CommandError with what the cluster says."""
    trust = str(_AUTHORITY) if _AUTHORITY.is_file() else ""
    body = {"host": name, "workers": list(workers)}
    try:
        status, answer = ask("POST", f"{invitation.url}/api/join", invitation.token, trust, body)
    except CannotReach as error:
        raise CommandError(
            FAILED,
            f"{invitation.url} cannot be joined: {error}.\n  Try again; where the invitation was used up meanwhile:"
            " ./deploy-cluster.sh invite prints another",
        ) from error
    if status == HTTPStatus.UNAUTHORIZED:
        raise CommandError(
            FAILED, "this invitation was used, or has expired: ./deploy-cluster.sh invite prints another"
        )
    if status != HTTPStatus.CREATED:
        said = answer.get("detail") or f"it answers {status}"
        raise CommandError(
            USAGE if status == HTTPStatus.CONFLICT else FAILED, f"{invitation.url} does not accept this machine: {said}"
        )
    return answer


def ask(method: str, url: str, bearer: str, trust: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    """Make one call; return its status and its JSON, if that is an object. Raises CannotReach."""
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    try:
        with client(ssl.create_default_context(cafile=trust or None)) as http:
            answer = http.request(method, url, json=body, headers=headers)
            return answer.status_code, _object(answer.content)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise CannotReach(_why(error)) from error


def client(trust: ssl.SSLContext) -> httpx.Client:
    """Return a client for a cluster elsewhere.

    A redirect would take the token elsewhere, so none is followed. Workers use no proxy either.
    """
    return httpx.Client(verify=trust, timeout=_SECONDS, trust_env=False)


def _object(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content or b"{}")
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _why(error: Exception) -> str:
    cause = causes.system_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not of the authority that invited ({cause.verify_message}); look at this clock too"
    return str(error) or type(error).__name__


def end(membership: Membership) -> list[str]:
    """End the tokens of this host's workers; return what is still in force, as worker and reason."""
    return revoke_tokens(membership, {worker: token(worker) for worker in membership.workers})


def revoke_tokens(membership: Membership, given: Mapping[str, str]) -> list[str]:
    """End these tokens, by worker; return what is still in force."""
    left = []
    for worker, text in given.items():
        known = tokens.parsed(text)
        if known is None:
            left.append(f"{worker}: its token is not here any more")
            continue
        try:
            status, _ = ask("DELETE", f"{membership.url}/api/tokens/{known.id}", known.text, membership.authority)
        except CannotReach as error:
            left.append(f"{worker}: {error}")
            continue
        if status not in (HTTPStatus.NO_CONTENT, HTTPStatus.UNAUTHORIZED):  # the latter: it was ended before
            left.append(f"{worker}: the cluster answers {status}")
    return left


def forget() -> None:
    """Remove what is kept."""
    shutil.rmtree(FOLDER, ignore_errors=True)
