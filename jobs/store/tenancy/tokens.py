"""API tokens, browser sessions and one-time login codes, which authenticate the users of the API.

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
from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part

#: Pattern of a token (tc_<id>_<secret>) or a session cookie (ts_<id>_<secret>).
_WRITTEN = re.compile(r"(tc|ts)_([a-z0-9]{10})_([A-Za-z0-9_-]{43})")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
#: Maximum number of API tokens, and maximum number of browser sessions.
#: Each coordinator keeps all tokens and sessions in memory.
MAX_TOKENS, MAX_SESSIONS = 10_000, 10_000
#: Maximum number of sessions per token. Without this limit, repeated logins could end the sessions of other tokens.
MAX_LOGINS = 100
#: Duration of a browser session in milliseconds: twelve hours.
SESSION_MS = 12 * 3600 * 1000
#: Seconds for which a one-time login code is valid.
CODE_SECONDS = 600
#: Maximum number of valid login codes per token. Older codes become invalid.
MAX_CODES = 10


class LastAdmin(Exception):
    """The token cannot be revoked, because it is the last valid token with the scope admin."""


class Credential(NamedTuple):
    """API token or session cookie, as a client sends it."""

    #: Prefix of the credential: tc for a token, ts for a session.
    kind: str
    id: str
    digest: str
    text: str

    def matches(self, digest: str) -> bool:
        """Return True if `digest` is the digest of this credential's secret."""
        return hmac.compare_digest(self.digest, digest)


def mint(kind: str = "tc") -> Credential:
    """Return a new random token (tc) or session cookie (ts)."""
    name = "".join(secrets.choice(_LETTERS) for _ in range(10))
    text = secrets.token_urlsafe(32)
    return Credential(kind, name, digest(text), f"{kind}_{name}_{text}")


def parse_credential(text: str, kind: str = "tc") -> Credential | None:
    """Parse a token or session cookie. Return None if the text is not a valid one."""
    parts = _WRITTEN.fullmatch(text)
    return Credential(kind, parts[2], digest(parts[3]), text) if parts and parts[1] == kind else None


def digest(secret: str) -> str:
    """Return the SHA-256 digest of a secret in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Token:
    """API token, as stored in Redis. Times are milliseconds since 1970, and 0 means never."""

    id: str
    name: str
    tenant: str
    scopes: tuple[str, ...]
    digest: str
    created: int
    expires: int
    used: int
    #: Labels of the worker's host, or of the host that joins with this invitation.
    labels: tuple[str, ...] = ()
    #: Name of the host that joined the cluster with the token. Empty for other tokens.
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class BrowserSession:
    """Login of a browser, which lasts until it expires or is ended."""

    id: str
    digest: str
    #: Digest of the CSRF token, which pages send in a header.
    csrf: str
    #: ID of the API token that was used to log in. If the token ends, the session ends, too.
    token: str
    #: Digest of CLUSTER_TOKEN if it was used to log in. Otherwise empty.
    bootstrap: str
    expires: int


class Tokens(Part):
    """Stores API tokens, browser sessions and login codes in Redis."""

    def state(self) -> tuple[bytes, int]:
        """Return the version of the set of tokens and sessions, and the Redis time in milliseconds.

        The version is empty if its key has the wrong type. The next change of the set replaces the key.
        """
        commands = (("GET", keys.TOKENS_VERSION), ("TIME",))
        version, (seconds, micros) = unreadable_entries.replies_at_once(self._functions, *commands)
        return version or b"", int(seconds) * 1000 + int(micros) // 1000

    def ids(self) -> frozenset[str]:
        """Return the IDs of all tokens and all browser sessions."""
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
        """Store an API token that expires after `ttl_ms` milliseconds, or never if `ttl_ms` is 0.

        Return `new`, `full` if MAX_TOKENS exist, or `missing` if the tenant is not registered. `labels` are the labels
        of the worker's host; `host` is the host that joins with the token.
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
        """Delete an API token and its sessions. Return False if the token does not exist.

        This also works if Redis is full. With `keep_admin`, raise LastAdmin for the last valid token with the scope
        admin.
        """
        index = keys.TOKENS.removeprefix(keys.PREFIX)
        ended = int(self._functions.run_acknowledged("end_token", index, token_id, *actor, int(keep_admin)))
        if ended < 0:
            raise LastAdmin(token_id)
        return bool(ended)

    def touch(self, token_id: str) -> None:
        """Record the current time as the last use of a token."""
        self._functions.run("touch_token", token_id)

    def get(self, token_id: str) -> Token | None:
        """Return an API token, or None if it does not exist or is unreadable."""
        [fields] = self._functions.read(("HGETALL", keys.token(token_id)))
        return _token(token_id, _text(fields))

    def all(self) -> list[Token]:
        """Return all API tokens, oldest first, including expired tokens."""
        ids = [name.decode() for name in self._client.zrange(keys.TOKENS, 0, -1)]
        pipe = self._pipe()
        for name in ids:
            pipe.hgetall(keys.token(name))
        rows = ({key.decode(): value.decode(errors="replace") for key, value in row.items()} for row in pipe.execute())
        return [token for name, row in zip(ids, rows, strict=True) if (token := _token(name, row))]

    # -- sessions ---------------------------------------------------------------------------------------------------

    def log_in(self, credential: Credential, csrf: str, actor: Actor, bootstrap: str = "") -> None:
        """Store a browser session that lasts for SESSION_MS milliseconds.

        Beyond MAX_LOGINS, the token's oldest session ends; beyond MAX_SESSIONS, the oldest of all sessions.
        """
        fields = {"digest": credential.digest, "csrf": digest(csrf), "token": actor.token, "bootstrap": bootstrap}
        flat = [item for pair in fields.items() for item in pair]
        self._functions.run("log_in", credential.id, *actor, SESSION_MS, MAX_SESSIONS, MAX_LOGINS, *flat)

    def log_out(self, session_id: str, actor: Actor = ANONYMOUS) -> bool:
        """End a browser session. This also works if Redis is full."""
        index = keys.SESSIONS.removeprefix(keys.PREFIX)
        return bool(self._functions.run_acknowledged("end_token", index, session_id, *actor, 0))

    def session(self, session_id: str) -> BrowserSession | None:
        """Return a browser session, or None if it does not exist."""
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
        """Store a one-time login code for the owner of an API token. The code is valid for CODE_SECONDS seconds.

        Only the token's MAX_CODES latest codes are valid.
        """
        self._functions.run("add_code", digest(code), token, CODE_SECONDS, MAX_CODES, f"{token}|{bootstrap}")

    def redeem_code(self, code: str) -> tuple[str, str] | None:
        """Consume a login code, and return its token ID and the digest of CLUSTER_TOKEN. Return None if it is
        invalid.
        """
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
