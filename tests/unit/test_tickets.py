"""Tests tickets to service pages: forged, expired or changed ones, ones for another page or use, and revoked tokens."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from coordinator.access.principal import ANYONE, OWNER, Principal, Scope
from coordinator.services.pages import tickets
from coordinator.services.pages.tickets import Place, Use
from jobs.store.tenancy.tokens import digest

PLACE = Place(service_id="0123456789ab", key="k" * 32)
ANNA = Principal(tenant="a", token="t123456789", scopes=frozenset({Scope.READ}))


class Known:
    """Fake credentials with valid tokens and logins."""

    def __init__(
        self, *tokens: Principal, logins: tuple[str, ...] = (), bootstraps: tuple[str, ...] = ("old", "new")
    ) -> None:
        self._tokens = {one.token: one for one in tokens}
        self._logins, self._bootstraps = logins, [digest(one) for one in bootstraps]

    def cluster_token_digests(self) -> list[str]:
        return self._bootstraps

    async def principal_by_token_id(self, token: str, bootstrap: str) -> Principal | None:
        if token == OWNER.token:
            return replace(OWNER, bootstrap=bootstrap) if bootstrap in self._bootstraps else None
        return self._tokens.get(token)

    async def is_valid(self, principal: Principal) -> bool:
        return not principal.session or principal.session in self._logins


def holder(text: str, known: Any, place: Place = PLACE, use: Use = Use.COOKIE) -> Principal | None:
    return asyncio.run(tickets.holder(text, place, use, known))


def test_a_ticket_says_whose_it_is_for_one_page_and_use() -> None:
    text, known = tickets.issue(PLACE, Use.COOKIE, ANNA, 60), Known(ANNA)
    assert holder(text, known) == ANNA
    assert holder(text, known, use=Use.LINK) is None
    assert holder(text, known, replace(PLACE, service_id="ba9876543210")) is None
    assert holder(text, known, replace(PLACE, key="l" * 32)) is None


def test_a_ticket_ends_with_its_time_its_token_and_its_login(monkeypatch: pytest.MonkeyPatch) -> None:
    text = tickets.issue(PLACE, Use.COOKIE, replace(ANNA, session="s123"), 60)
    assert holder(text, Known(ANNA, logins=("s123",))) == replace(ANNA, session="s123")
    assert holder(text, Known(ANNA)) is None and holder(text, Known(logins=("s123",))) is None
    later = time.time() + 61
    monkeypatch.setattr("time.time", lambda: later)
    assert holder(text, Known(ANNA, logins=("s123",))) is None


def test_a_ticket_of_the_cluster_token_ends_with_that_one_of_several() -> None:
    text = tickets.issue(PLACE, Use.COOKIE, replace(OWNER, bootstrap=digest("old")), 60)
    found = holder(text, Known())
    assert found == OWNER and found.bootstrap == digest("old")
    assert holder(text, Known(bootstraps=("new",))) is None
    assert digest("old") not in text, "whoever has the link could look for a short one by it"


def test_nothing_but_a_ticket_is_one() -> None:
    text, known = tickets.issue(PLACE, Use.COOKIE, ANNA, 60), Known(ANNA, OWNER)
    until, token, session, signature = text.split(".")
    wrong = [
        "",
        ".",
        "...",
        text + "x",
        text[:-1],
        f"{int(until) + 1}.{token}.{session}.{signature}",
        f"{until}.{OWNER.token}.{session}.{signature}",
        f"{until}.{token}.s1.{signature}",
        f"{until}.{token}.{signature}",
        f"{'9' * 4000}.{token}.{session}.{signature}",
        text.replace(".", "\0"),
        f"٣{text}",
        f"{text}\n",
        "\ud800",
    ]
    assert [holder(one, known) for one in wrong] == [None] * len(wrong)
    assert holder(tickets.issue(PLACE, Use.COOKIE, ANYONE, 60), known) is None
