"""The last administrator's token cannot be revoked. Before, only a restart gave access again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from jobs.store import keys
from jobs.store.tenancy import tokens
from tests import fetch
from tests.contract.api_transport import serve
from tests.contract.lease_model import Bench


@pytest.fixture
def bench(any_redis_url: str) -> Bench:
    """Return the functions on one version of Redis."""
    return Bench(any_redis_url)


def admin(bench: Bench, *scopes: str, ttl_ms: int = 0) -> str:
    minted = tokens.mint()
    assert bench.store.tokens.create(minted, name="a", scopes=scopes or ("admin",), ttl_ms=ttl_ms) == "new"
    return minted.id


def is_kept(bench: Bench, token: str) -> bool:
    try:
        assert bench.store.tokens.revoke(token, keep_admin=True)
    except tokens.LastAdmin:
        return True
    return False


def test_the_last_one_is_kept_and_any_before_it_ends(bench: Bench) -> None:
    first, second = admin(bench), admin(bench, "admin", "read")
    assert not is_kept(bench, first)
    assert is_kept(bench, second) and bench.store.tokens.get(second) is not None
    third = admin(bench)
    assert not is_kept(bench, second) and is_kept(bench, third)


def test_others_end_as_before(bench: Bench) -> None:
    last, reader = admin(bench), admin(bench, "read", "submit", "operate")
    assert not is_kept(bench, reader)
    assert not bench.store.tokens.revoke("nobody", keep_admin=True)
    assert bench.store.tokens.revoke(last), "who has another way may end the last one, too"


def test_one_whose_time_is_over_is_no_administrator(bench: Bench) -> None:
    last, short = admin(bench), admin(bench, ttl_ms=60_000)
    bench.advance(60_001)
    assert is_kept(bench, last), "the other one counts no more"
    assert not is_kept(bench, short)
    soon = admin(bench, ttl_ms=60_000)
    assert not is_kept(bench, last) and is_kept(bench, soon), "it counts until then"


def test_a_broken_token_is_no_administrator(bench: Bench) -> None:
    last, broken = admin(bench), admin(bench)
    bench.client.delete(keys.token(broken))
    bench.client.set(keys.token(broken), "x")
    assert is_kept(bench, last)


def test_of_two_that_end_each_other_at_once_one_stays(bench: Bench) -> None:
    with ThreadPoolExecutor(2) as both:
        for _ in range(50):
            pair = [admin(bench), admin(bench)]
            assert sorted(both.map(lambda token: is_kept(bench, token), pair)) == [False, True]
            assert len([one for one in bench.store.tokens.all() if "admin" in one.scopes]) == 1
            for left in bench.store.tokens.all():
                bench.store.tokens.revoke(left.id)


def end_itself(url: str, bench: Bench, **settings: Any) -> httpx.Response:
    with serve(url, bench.store, **settings) as served:
        token = served.token("local", "admin")
        headers = {"Authorization": f"Bearer {token}"}
        address = f"{served.place}/api/tokens/{token.split('_')[1]}"
        answer = fetch.delete(address, headers=headers, timeout=30)
        if answer.status_code == 409:
            assert fetch.get(f"{served.place}/api/tokens", headers=headers).status_code == 200, "it still counts"
            served.token("second", "admin")
            assert fetch.delete(address, headers=headers, timeout=30).status_code == 204
        return answer


@pytest.mark.parametrize("auth", ["auto", "required"])
def test_the_api_says_what_to_do_first(bench: Bench, any_redis_url: str, auth: str) -> None:
    answer = end_itself(any_redis_url, bench, auth=auth)
    assert answer.status_code == 409, answer.text
    for words in ("is the last one with the scope admin", "cluster token create NAME --scopes admin", "CLUSTER_TOKEN"):
        assert words in answer.json()["detail"]


def test_with_cluster_token_the_last_one_ends(bench: Bench, any_redis_url: str) -> None:
    assert end_itself(any_redis_url, bench, cluster_token="x" * 32).status_code == 204
