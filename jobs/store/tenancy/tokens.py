"""API tokens, browser sessions and one-time login codes, which authenticate requests.

Redis stores only SHA-256 digests of secrets. The secrets are 256 random bits and cannot be guessed. One key changes
with the set of tokens and sessions, so coordinators detect changes by reading only this key. It is not a counter,
because a counter would repeat values after Redis has lost writes.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jobs.hosts.labels import join_labels, split_labels
from jobs.models import ANONYMOUS, DEFAULT_TENANT, Actor
from jobs.store import keys
from jobs.store.server.functions import Part

#: Format of a token (tc_<id>_<secret>) or session cookie (ts_<id>_<secret>).
_WRITTEN = re.compile(r"(tc|ts)_([a-z0-9]{10})_([A-Za-z0-9_-]{43})")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
#: Maximum numbers of tokens and sessions, which each coordinator keeps in memory.
MAX_TOKENS, MAX_SESSIONS = 10_000, 10_000
#: Maximum number of sessions per token, so that repeated logins do not end other tokens' sessions.
MAX_LOGINS = 100
#: Duration of a browser session in milliseconds.
SESSION_MS = 12 * 3600 * 1000
#: Seconds for which a one-time code is valid.
CODE_SECONDS = 600
#: Maximum number of valid codes per token; older codes become invalid.
MAX_CODES = 10


class LastAdmin(Exception):
    """The token was not revoked because it is the last valid one with the scope admin."""


class Credential(NamedTuple):
    """A token or session cookie as sent by a client."""

    #: tc or ts.
    kind: str
    id: str
    digest: str
    text: str

    def matches(self, digest: str) -> bool:
        """Return True if this is the digest of the secret."""
        return hmac.compare_digest(self.digest, digest)


def mint(kind: str = "tc") -> Credential:
    """Return a new random credential for a token or a session."""
    name = "".join(secrets.choice(_LETTERS) for _ in range(10))
    text = secrets.token_urlsafe(32)
    return Credential(kind, name, digest(text), f"{kind}_{name}_{text}")


def parse_credential(text: str, kind: str = "tc") -> Credential | None:
    """Parse a credential; return None if the text is not a credential of this kind."""
    parts = _WRITTEN.fullmatch(text)
    return Credential(kind, parts[2], digest(parts[3]), text) if parts and parts[1] == kind else None


def digest(secret: str) -> str:
    """Return the SHA-256 of a secret in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Token:
    """An API token as stored. Times are milliseconds of Redis time; 0 means never."""

    id: str
    name: str
    tenant: str
    scopes: tuple[str, ...]
    digest: str
    created: int
    expires: int
    used: int
    #: Labels of the worker's host. For an invitation, labels of the host that joins with it.
    labels: tuple[str, ...] = ()
    #: Name of the host that joined with the token; empty for other tokens.
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class BrowserSession:
    """A session of a browser."""

    id: str
    digest: str
    #: Digest of the CSRF token that pages send in a header.
    csrf: str
    #: ID of the API token used for the login. The session ends with this token.
    token: str
    #: Digest of CLUSTER_TOKEN if it was used for the login; otherwise empty.
    bootstrap: str
    expires: int


class Tokens(Part):
    """Creates, finds and ends tokens and sessions."""

    def state(self) -> tuple[bytes, int]:
        """Return the text that changes with the set of tokens and sessions, and Redis time in milliseconds."""
        version, (seconds, micros) = self._functions.read(("GET", keys.TOKENS_VERSION), ("TIME",))
        return version or b"", int(seconds) * 1000 + int(micros) // 1000

    def ids(self) -> frozenset[str]:
        """Return the IDs of all tokens and sessions."""
        tokens, sessions = self._functions.read(
            ("ZRANGE", keys.TOKENS, "0", "-1"), ("ZRANGE", keys.SESSIONS, "0", "-1")
        )
        return frozenset(name.decode() for name in (*tokens, *sessions))

    # -- tokens -----------------------------------------------------------------------------------------------------

    def create(
        self,
        credential: Credential,
        *,
        name: str,
        scopes: tuple[str, ...],
        tenant: str = DEFAULT_TENANT,
        ttl_ms: int = 0,
        actor: Actor = ANONYMOUS,
        labels: Iterable[str] = (),
        host: str = "",
    ) -> str:
        """Store a token that expires after ttl_ms, or never if that is 0. Return new, full or missing.

        `labels` are the labels of the worker's host; `host` is the host that joins with the token. `full` means that
        MAX_TOKENS exist; `missing` means that the tenant is not registered.
        """
        fields = {"name": name, "scopes": ",".join(scopes), "digest": credential.digest}
        further = {"labels": join_labels(labels), "host": host}
        fields |= {field: text for field, text in further.items() if text}
        flat = [item for pair in fields.items() for item in pair]
        [answer] = self._functions.run_acknowledged_texts(
            "create_token", credential.id, *actor, ttl_ms, MAX_TOKENS, tenant, *flat
        )
        return answer

    def revoke(self, token_id: str, actor: Actor = ANONYMOUS, *, keep_admin: bool = False) -> bool:
        """Delete a token and its sessions, even if Redis is full. Return False if it does not exist.

        With `keep_admin`, raise LastAdmin for the last valid token with the scope admin.
        """
        index = keys.TOKENS.removeprefix(keys.PREFIX)
        ended = int(self._functions.run_acknowledged("end_token", index, token_id, *actor, int(keep_admin)))
        if ended < 0:
            raise LastAdmin(token_id)
        return bool(ended)

    def touch(self, token_id: str) -> None:
        """Record that a token was used now."""
        self._functions.run("touch_token", token_id)

    def get(self, token_id: str) -> Token | None:
        """Return a token, or None if it does not exist or is unreadable."""
        [fields] = self._functions.read(("HGETALL", keys.token(token_id)))
        return _token(token_id, _text(fields))

    def all(self) -> list[Token]:
        """Return all tokens, including expired ones, oldest first."""
        ids = [name.decode() for name in self._client.zrange(keys.TOKENS, 0, -1)]
        pipe = self._pipe()
        for name in ids:
            pipe.hgetall(keys.token(name))
        rows = ({key.decode(): value.decode(errors="replace") for key, value in row.items()} for row in pipe.execute())
        return [token for name, row in zip(ids, rows, strict=True) if (token := _token(name, row))]

    # -- sessions ---------------------------------------------------------------------------------------------------

    def log_in(self, credential: Credential, csrf: str, actor: Actor, bootstrap: str = "") -> None:
        """Store a session for SESSION_MS.

        Beyond MAX_LOGINS, the token's oldest session ends; beyond MAX_SESSIONS, the oldest of all sessions.
        """
        fields = {"digest": credential.digest, "csrf": digest(csrf), "token": actor.token, "bootstrap": bootstrap}
        flat = [item for pair in fields.items() for item in pair]
        self._functions.run("log_in", credential.id, *actor, SESSION_MS, MAX_SESSIONS, MAX_LOGINS, *flat)

    def log_out(self, session_id: str, actor: Actor = ANONYMOUS) -> bool:
        """End a session, even if Redis is full."""
        index = keys.SESSIONS.removeprefix(keys.PREFIX)
        return bool(self._functions.run_acknowledged("end_token", index, session_id, *actor, 0))

    def session(self, session_id: str) -> BrowserSession | None:
        """Return a session, or None."""
        [reply] = self._functions.read(("HGETALL", keys.session(session_id)))
        row = _text(reply)
        try:
            return BrowserSession(
                id=session_id,
                digest=row["digest"],
                csrf=row["csrf"],
                token=row["token"],
                bootstrap=row["bootstrap"],
                expires=int(row["expires"]),
            )
        except (LookupError, ValueError):
            return None

    # -- one-time codes ---------------------------------------------------------------------------------------------

    def add_code(self, code: str, *, token: str, bootstrap: str = "") -> None:
        """Store a code with which the owner of a token can log in once, within CODE_SECONDS.

        Only the token's MAX_CODES latest codes are valid.
        """
        self._functions.run("add_code", digest(code), token, CODE_SECONDS, MAX_CODES, f"{token}|{bootstrap}")

    def redeem_code(self, code: str) -> tuple[str, str] | None:
        """Consume a code and return its (token ID, digest of CLUSTER_TOKEN). Return None for an invalid code."""
        stored = self._client.getdel(keys.login(digest(code)))
        token, bar, bootstrap = (stored or b"").decode(errors="replace").partition("|")
        return (token, bootstrap) if bar else None


def _text(reply: list[bytes]) -> dict[str, str]:
    words = [item.decode(errors="replace") for item in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def _token(token_id: str, row: Mapping[str, str]) -> Token | None:
    try:
        return Token(
            id=token_id,
            name=row["name"],
            tenant=row["tenant"],
            scopes=tuple(row["scopes"].split(",")),
            digest=row["digest"],
            created=int(row["created"]),
            expires=int(row["expires"]),
            used=int(row["used"]),
            labels=split_labels(row.get("labels", "")),
            host=row.get("host", ""),
        )
    except (LookupError, ValueError):
        return None
