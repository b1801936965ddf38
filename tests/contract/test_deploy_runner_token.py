"""Tests how the deploy script creates a runner's token, with the API of a real coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deploy import runner_token
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.tenancy import tokens
from tests.contract.api_transport import Served, serve


@pytest.fixture
def served(any_redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with (
        closing(connection.connect(any_redis_url, retries=0, timeout=30)) as client,
        serve(any_redis_url, Store(client)) as made,
    ):
        (tmp_path / "cluster_token").write_text(made.token("boss", "admin"))
        monkeypatch.setattr(runner_token, "TOKEN", tmp_path / "cluster_token")
        monkeypatch.setattr(runner_token, "API", f"{made.place}/api")
        yield made


def renewed(name: str, kept: str, labels: str) -> str:
    """Create a token, which must be necessary, and return its ID."""
    parsed = tokens.parse_credential(runner_token.renew_token(name, kept, labels))
    assert parsed is not None
    return parsed.id


def there(served: Served, name: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return ID and labels of each token with this name."""
    return [(token.id, tuple(token.labels)) for token in served.store.tokens.all() if token.name == name]


def test_one_that_counts_is_kept_and_one_that_was_revoked_is_replaced(served: Served) -> None:
    first = renewed("runner-0", "none", "")
    assert there(served, "runner-0") == [(first, ())]
    assert runner_token.renew_token("runner-0", first, "") == ""
    served.store.tokens.revoke(first)
    second = renewed("runner-0", first, "")
    assert there(served, "runner-0") == [(second, ())]


def test_other_labels_are_another_token_and_the_same_in_another_order_are_not(served: Served) -> None:
    plain = renewed("runner-0", "none", "")
    labelled = renewed("runner-0", plain, "trusted, eu,trusted")
    assert there(served, "runner-0") == [(labelled, ("eu", "trusted"))]
    assert runner_token.renew_token("runner-0", labelled, "eu trusted") == ""
    without = renewed("runner-0", labelled, "")
    assert there(served, "runner-0") == [(without, ())]


def test_tokens_of_other_names_and_scopes_stay(served: Served) -> None:
    served.token("runner-0", "submit")
    other = renewed("runner-1", "none", "")
    renewed("runner-0", "none", "eu")
    assert there(served, "runner-1") == [(other, ())] and len(there(served, "runner-0")) == 2


def test_what_the_api_refuses_and_that_it_is_away_is_said(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runner_token.main(["runner-0", "none", "e*"]) == 1
    assert "The API rejected the request: HTTP Error 422" in (said := capsys.readouterr().err) and "labels" in said
    assert there(served, "runner-0") == []
    monkeypatch.setattr(runner_token, "API", "http://127.0.0.1:1/api")
    assert runner_token.main(["runner-0", "none", ""]) == 1
    assert "The API does not answer" in capsys.readouterr().err
