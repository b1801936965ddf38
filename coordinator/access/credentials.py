"""Authenticate requests by CLUSTER_TOKEN, an API token, or a browser session."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from coordinator.access import guests
from coordinator.access.principal import ANYONE, BOOTSTRAP, OWNER, Principal, Scope
from coordinator.async_cache import AsyncCache
from jobs import errors
from jobs.network import exposure
from jobs.settings import Settings
from jobs.store.server.connection import Unreachable
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tokens import BrowserSession, Token, Tokens

_MISSING = "the request has no token; log in, or send the header Authorization: Bearer TOKEN"
_ONLY_GUEST = (
    "this request needs a token. Without one, programs on this machine can only submit compiled kinds, such as collatz,"
    f" and use the jobs that were submitted without a token; {guests.ADVICE}"
)
_REFUSED = "this token is unknown, was revoked or has expired; log in again, or use another token"
#: Maximum age in seconds of this replica's cached token set.
#: A revoked token must be rejected within one second, which includes the time of slow reads.
FRESH_SECONDS = 0.3
#: Minimum interval in seconds between two updates of a token's last-use time.
USED_SECONDS = 60.0

Stored = TypeVar("Stored", Token, BrowserSession)


class Credentials:
    """API tokens and browser sessions that this replica accepts.

    A request reads the token set's version from Redis if the cached version is older than FRESH_SECONDS. A changed
    version clears the cache. Unknown tokens use no memory and no Redis calls, because only existing tokens are loaded.
    """

    def __init__(self, settings: Settings, store: Tokens) -> None:
        self._cluster_tokens = settings.cluster_tokens()
        self.is_token_required = exposure.needs_token(settings)
        self._missing = _ONLY_GUEST if exposure.accepts_guests(settings) else _MISSING
        self._store = store
        self._state = AsyncCache(self._read)
        #: Time when this replica last changed tokens or sessions, from time.monotonic.
        self._changed_at = -1e9
        self._version: bytes | None = None
        self._ids: frozenset[str] = frozenset()
        self._kept: dict[str, Token | BrowserSession] = {}
        self._used_at: dict[str, float] = {}
        #: Redis time minus this machine's monotonic time, in milliseconds.
        self._clock = 0.0
        self._writes: set[asyncio.Task[None]] = set()

    # -- principals -------------------------------------------------------------------------------------------------

    async def principal_by_bearer(self, bearer: str) -> Principal:
        """Return the principal of a bearer token.

        Raise Unauthorized if the token is not valid, or if it is empty and the cluster requires one.
        """
        if bearer and _is_one_of(bearer, self._cluster_tokens):
            return replace(OWNER, bootstrap=tokens.digest(bearer))
        secret = tokens.parse_credential(bearer)
        if secret and (token := await self._find(secret.id, Token)) and secret.matches(token.digest):
            self._note_use(token.id)
            return _principal(token)
        if bearer:
            raise errors.Unauthorized(_REFUSED)
        if self.is_token_required:
            raise errors.Unauthorized(self._missing)
        return ANYONE

    async def principal_by_cookie(self, cookie: str, csrf: str) -> Principal | None:
        """Return the principal of a session cookie, or None if the session has ended or the CSRF token is wrong."""
        session = await self._find_session(cookie)
        if session is None or not hmac.compare_digest(tokens.digest(csrf), session.csrf):
            return None
        principal = await self.principal_by_token_id(session.token, session.bootstrap)
        return principal and replace(principal, session=session.id)

    async def _find_session(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie, or None if it does not exist or has expired."""
        secret = tokens.parse_credential(cookie, "ts")
        session = await self._find(secret.id, BrowserSession) if secret else None
        return session if session and secret and secret.matches(session.digest) else None

    async def principal_by_token_id(self, token_id: str, bootstrap: str) -> Principal | None:
        """Return the principal of a token by its ID, or None if the token is no longer valid.

        If `token_id` is BOOTSTRAP, `bootstrap` is the digest of the CLUSTER_TOKEN.
        """
        if token_id == BOOTSTRAP:
            known = bootstrap in self.cluster_token_digests()
            return replace(OWNER, bootstrap=bootstrap) if known else None
        token = await self._find(token_id, Token)
        return _principal(token) if token else None

    def cluster_token_digests(self) -> list[str]:
        """Return the digests of the valid cluster tokens."""
        return [tokens.digest(token) for token in self._cluster_tokens]

    async def is_valid(self, principal: Principal) -> bool:
        """Return True if the principal's token and session are still valid.

        CLUSTER_TOKEN stays valid until this process exits.
        """
        if principal.session and not await self._find(principal.session, BrowserSession):
            return False
        return principal.token in ("", BOOTSTRAP) or await self._find(principal.token, Token) is not None

    async def require_valid(self, principal: Principal) -> None:
        """Raise Unauthorized unless the principal's token and session are still valid."""
        if not await self.is_valid(principal):
            raise errors.Unauthorized(_REFUSED)

    def invalidate(self) -> None:
        """Make the next request read the tokens from Redis again, after a change of tokens or sessions."""
        self._changed_at = time.monotonic()

    # -- token cache ---------------------------------------------------------------------------------------------------

    async def _find(self, name: str, kind: type[Stored]) -> Stored | None:
        """Return the stored token or session with this ID, or None if it does not exist or has expired."""
        began = time.monotonic()
        await self._state.get("", max(began - FRESH_SECONDS, self._changed_at))
        if name not in self._ids:  # the token or session may have been created after the last read
            await self._state.refresh("", max(began, self._changed_at))
        if name not in self._ids:
            return None
        stored = self._kept.get(name) or await self._load(name, kind)
        if not isinstance(stored, kind) or 0 < stored.expires <= time.monotonic() * 1000 + self._clock:
            return None
        return stored

    async def _load(self, name: str, kind: type[Stored]) -> Token | BrowserSession | None:
        version = self._version
        stored = await run_in_threadpool(self._store.get if kind is Token else self._store.session, name)
        if stored and version == self._version:
            self._kept[name] = stored
        return stored

    async def _read(self, _key: str) -> None:
        version, now = await run_in_threadpool(self._store.state)
        if version != self._version:
            self._ids = await run_in_threadpool(self._store.ids)
            self._kept, self._version = {}, version
            self._used_at = {name: at for name, at in self._used_at.items() if name in self._ids}
        self._clock = now - time.monotonic() * 1000

    def _note_use(self, token_id: str) -> None:
        """Write a token's time of last use in the background, at most once per USED_SECONDS."""
        now = time.monotonic()
        if now - self._used_at.get(token_id, -1e9) > USED_SECONDS:
            self._used_at[token_id] = now
            writing = asyncio.create_task(self._write_use(token_id))
            self._writes.add(writing)
            writing.add_done_callback(self._writes.discard)

    async def _write_use(self, token_id: str) -> None:
        with contextlib.suppress(*Unreachable):
            await run_in_threadpool(self._store.touch, token_id)


def _principal(token: Token) -> Principal:
    scopes = frozenset(scope for scope in Scope if scope.value in token.scopes)
    return Principal(tenant=token.tenant, token=token.id, scopes=scopes, name=token.name, labels=token.labels)


def _is_one_of(bearer: str, known: Sequence[str]) -> bool:
    # Compare with all tokens, so that the duration does not reveal which token matches.
    return sum(hmac.compare_digest(bearer.encode(), token.encode()) for token in known) > 0
