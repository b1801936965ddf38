"""Credentials of requests: who asks, by CLUSTER_TOKEN, an API token, or the session of a browser."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import ANYONE, BOOTSTRAP, OWNER, Principal, Scope
from coordinator.freshness import Fresh
from jobs import errors
from jobs.network import exposure
from jobs.settings import Settings
from jobs.store.server.connection import Unreachable
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tokens import BrowserSession, Token, Tokens

_MISSING = "no token was sent: log in, or send Authorization: Bearer TOKEN"
_REFUSED = "this token is unknown, was revoked or has expired"
#: What a replica knows of the tokens is at most this old. One that was revoked is refused within a second: the rest of
#: that is for the read itself, on a replica or a Redis with much to do.
FRESH_SECONDS = 0.3
#: The last use of a token is written at most this often.
USED_SECONDS = 60.0

Stored = TypeVar("Stored", Token, BrowserSession)


class Credentials:
    """Tokens and sessions that this replica accepts.

    Once in FRESH_SECONDS, while somebody asks, one read says whether the set of tokens and sessions has changed. Only
    those that exist are looked up and kept, so that unknown ones cost neither memory nor a call of Redis each.
    """

    def __init__(self, settings: Settings, store: Tokens) -> None:
        self._cluster_tokens = settings.cluster_tokens()
        self.needed = exposure.needs_token(settings)
        self._store = store
        self._state = Fresh(self._read)
        #: When this replica changed the set of tokens or sessions last, by time.monotonic.
        self._changed_at = -1e9
        self._version: bytes | None = None
        self._ids: frozenset[str] = frozenset()
        self._kept: dict[str, Token | BrowserSession] = {}
        self._used_at: dict[str, float] = {}
        #: Redis' clock less this machine's monotonic one, in milliseconds.
        self._clock = 0.0
        self._writes: set[asyncio.Task[None]] = set()

    # -- who asks ---------------------------------------------------------------------------------------------------

    async def principal(self, bearer: str) -> Principal:
        """Return who asks with this bearer token. Unauthorized when it is unknown, or missing where one is needed."""
        if bearer and _is_one_of(bearer, self._cluster_tokens):
            return replace(OWNER, bootstrap=tokens.digest(bearer))
        given = tokens.parsed(bearer)
        if given and (token := await self._find(given.id, Token)) and given.matches(token.digest):
            self._note_use(token.id)
            return _principal(token)
        if bearer:
            raise errors.Unauthorized(_REFUSED)
        if self.needed:
            raise errors.Unauthorized(_MISSING)
        return ANYONE

    async def principal_by_cookie(self, cookie: str, csrf: str) -> Principal | None:
        """Return who is logged in with this cookie; None unless the session lives and its page sent its CSRF token."""
        session = await self.session(cookie)
        if session is None or not hmac.compare_digest(tokens.digest(csrf), session.csrf):
            return None
        principal = await self.bearer(session.token, session.bootstrap)
        return principal and replace(principal, session=session.id)

    async def session(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie; None when it does not live."""
        given = tokens.parsed(cookie, "ts")
        session = await self._find(given.id, BrowserSession) if given else None
        return session if session and given and given.matches(session.digest) else None

    async def bearer(self, token_id: str, bootstrap: str) -> Principal | None:
        """Return who has a token by its id, or CLUSTER_TOKEN by its digest; None when that counts no more."""
        if token_id == BOOTSTRAP:
            known = bootstrap in self.bootstraps()
            return replace(OWNER, bootstrap=bootstrap) if known else None
        token = await self._find(token_id, Token)
        return _principal(token) if token else None

    def bootstraps(self) -> list[str]:
        """Return the digests of the CLUSTER_TOKENs that count."""
        return [tokens.digest(one) for one in self._cluster_tokens]

    async def holds(self, principal: Principal) -> bool:
        """Return True while what the principal showed still counts; CLUSTER_TOKEN does until this process ends."""
        if principal.session and not await self._find(principal.session, BrowserSession):
            return False
        return principal.token in ("", BOOTSTRAP) or await self._find(principal.token, Token) is not None

    async def require(self, principal: Principal) -> None:
        """Raise Unauthorized unless what the principal showed still counts."""
        if not await self.holds(principal):
            raise errors.Unauthorized(_REFUSED)

    def forget(self) -> None:
        """Ask Redis at the next request: this replica has just changed the set of tokens or sessions."""
        self._changed_at = time.monotonic()

    # -- what Redis has ---------------------------------------------------------------------------------------------

    async def _find(self, name: str, kind: type[Stored]) -> Stored | None:
        """Return the stored token or session of this id; None when there is none, or its time is over."""
        began = time.monotonic()
        await self._state.since("", max(began - FRESH_SECONDS, self._changed_at))
        if name not in self._ids:  # it may be new
            await self._state.anew("", max(began, self._changed_at))
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
        """Have the use of a token written, once in USED_SECONDS; nobody waits for it."""
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


def _is_one_of(given: str, known: Sequence[str]) -> bool:
    # All of them: it takes as long for the first as for the last.
    return sum(hmac.compare_digest(given.encode(), token.encode()) for token in known) > 0
