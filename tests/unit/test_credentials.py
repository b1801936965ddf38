"""Tests a replica's token cache while Redis is slow, unreachable or changing."""

from __future__ import annotations

import asyncio
import threading

import pytest

from coordinator.access.credentials import Credentials
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.server.connection import Silent
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tokens import Credential, Token

GIVEN = tokens.mint()


class Stored:
    """Tokens in a fake Redis that answers reads when `answers` is set, and raises `error` if it is set."""

    def __init__(self) -> None:
        self.tokens: dict[str, Token] = {}
        self.asked, self.answers = threading.Event(), threading.Event()
        self.answers.set()
        self.error: Exception | None = None
        self.reads = 0

    def state(self) -> tuple[bytes, int]:
        self.reads += 1
        self.asked.set()
        seen = "|".join(self.tokens).encode()
        self.answers.wait(30)
        if self.error:
            raise self.error
        return seen, 0

    def ids(self) -> frozenset[str]:
        return frozenset(self.tokens)

    def get(self, token_id: str) -> Token | None:
        return self.tokens.get(token_id)

    def touch(self, token_id: str) -> None:
        """Record nothing."""

    def add(self, given: Credential) -> None:
        self.tokens[given.id] = Token(
            id=given.id, name="t", tenant="a", scopes=("read",), digest=given.digest, created=0, expires=0, used=0
        )


def credentials(stored: Stored, **settings: str) -> Credentials:
    return Credentials(Settings.model_validate(settings), stored)  # type: ignore[arg-type]


def test_all_who_wait_for_a_redis_that_is_away_hear_of_it_at_once() -> None:
    """One after another, the requests would each wait for seconds."""
    stored = Stored()
    stored.error = Silent("redis has been silent")
    stored.answers.clear()

    async def go() -> list[object]:
        known = credentials(stored)
        asking = [asyncio.create_task(known.principal_by_bearer(GIVEN.text)) for _ in range(50)]
        assert await asyncio.to_thread(stored.asked.wait, 30)
        stored.answers.set()
        return await asyncio.gather(*asking, return_exceptions=True)

    assert all(isinstance(answer, Silent) for answer in asyncio.run(go()))
    assert stored.reads == 1


def test_a_request_after_an_outage_asks_anew() -> None:
    stored = Stored()
    stored.add(GIVEN)

    async def go() -> str:
        known = credentials(stored)
        stored.error = Silent("redis has been silent")
        with pytest.raises(Silent):
            await known.principal_by_bearer(GIVEN.text)
        stored.error = None
        return (await known.principal_by_bearer(GIVEN.text)).tenant

    assert asyncio.run(go()) == "a"


def test_a_change_counts_although_a_read_from_before_ends_after_it() -> None:
    stored = Stored()
    stored.add(GIVEN)
    stored.answers.clear()

    async def go() -> bool:
        known = credentials(stored)
        asking = asyncio.create_task(known.principal_by_bearer(GIVEN.text))
        assert await asyncio.to_thread(stored.asked.wait, 30)
        stored.tokens.clear()
        known.invalidate()
        stored.answers.set()
        await asyncio.gather(asking, return_exceptions=True)
        return await known.principal_by_token_id(GIVEN.id, "") is None

    assert asyncio.run(go()), "it was revoked"


def test_a_login_with_one_cluster_token_ends_with_that_one() -> None:
    """The same is true for a login by link: a replaced token gives no access to a login with its successor."""
    stored = Stored()

    async def go() -> list[bool]:
        both, new = (credentials(stored, cluster_token=text) for text in ("new,old", "new"))
        principals = [await both.principal_by_bearer(bearer) for bearer in ("old", "new")]
        return [
            await new.principal_by_token_id(principal.token, principal.bootstrap) is not None
            for principal in principals
        ]

    assert asyncio.run(go()) == [False, True]


def test_a_token_has_a_bounded_number_of_codes(any_redis_url: str) -> None:
    store = Store(connection.connect(any_redis_url, retries=0, timeout=30))
    for number in range(tokens.MAX_CODES + 5):
        store.tokens.add_code(f"code-{number}", token="t1")
    store.tokens.add_code("another", token="t2")
    assert [store.tokens.redeem_code(f"code-{number}") for number in range(5)] == [None] * 5
    assert store.tokens.redeem_code("code-5") == store.tokens.redeem_code("code-14") == ("t1", "")
    assert store.tokens.redeem_code("code-5") is None and store.tokens.redeem_code("another") == ("t2", "")
