"""Tests the local cluster's runner, which requires tokens and has no Redis password."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.local import api, cluster_programs, private_files, runner_token
from deploy.local.outcome import CommandError
from deploy.local.processes import Run
from deploy.local.shape import Shape, plan
from jobs.settings import Settings
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tokens import Credential, Token


def shape(*, runner: bool) -> Shape:
    return Shape(redis_server="redis-server", redis_port=1, port=3100, metrics_port=0, lanes=(2,), runner=runner)


def programs(folder: Path, *, runner: bool) -> dict[str, cluster_programs.Program]:
    passwords = {role: f"password-of-{role}" for role in cluster_programs.passwords()}
    return {one.name: one for one in cluster_programs.programs(shape(runner=runner), Run.new(folder), passwords)}


def test_there_is_none_unless_asked_for(tmp_path: Path) -> None:
    without, with_one = programs(tmp_path, runner=False), programs(tmp_path, runner=True)
    assert with_one.keys() - without.keys() == {"runner-1"}
    assert "AUTH" not in without["coordinator"].environment
    assert with_one["coordinator"].environment["AUTH"] == "guest", "only the owners of tokens reach programs"
    assert (shape(runner=False).workers, shape(runner=True).workers) == (1, 2)


def test_a_runner_keeps_the_users_choice_that_each_call_needs_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_programs, "load", lambda: Settings(auth="required"))
    assert "AUTH" not in programs(tmp_path, runner=True)["coordinator"].environment, "inherited"
    monkeypatch.setattr(cluster_programs, "load", lambda: Settings(autoscale_max=20))
    assert "AUTOSCALE_MAX" not in programs(tmp_path, runner=True)["coordinator"].environment, "inherited"


def test_a_local_cluster_suggests_no_more_workers_than_lanes(tmp_path: Path) -> None:
    environment = programs(tmp_path, runner=False)["coordinator"].environment
    assert environment["AUTOSCALE_MAX"] == str(sum(shape(runner=False).lanes))


def test_a_runner_has_no_password_and_no_token_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER_TOKEN", "of-the-user")
    given = programs(tmp_path, runner=True)["runner-1"].environment
    assert "password" not in str(given)
    for name in ("CLUSTER_TOKEN", "METRICS_TOKEN", "REDIS_URL", "SECRETS_KEY", "WORKER_TOKEN"):
        assert given[name] == "", f"supervisord's own {name} would be inherited"
    assert (given["WORKER_API"], given["WORKER_ID"]) == ("http://127.0.0.1:3100", "runner-1")


def test_a_runner_asks_where_the_api_listens() -> None:
    assert api.local_url(Settings(bind="::1"), 3000) == "http://[::1]:3000"
    assert api.local_url(Settings(bind="0.0.0.0"), 3000) == "http://127.0.0.1:3000"


def test_users_of_their_own_need_a_folder_that_they_can_enter() -> None:
    settings = Settings(runner_uids="20001-20001", runner_slots=1)
    with pytest.raises(CommandError, match="set RUNNER_DIR"):
        plan(settings, None, 1, runner=True)


class FakeTokens:
    """Fake tokens of a store."""

    def __init__(self) -> None:
        self.rows: dict[str, Token] = {}

    def all(self) -> list[Token]:
        return list(self.rows.values())

    def revoke(self, token_id: str) -> None:
        del self.rows[token_id]

    def create(self, minted: Credential, *, name: str, scopes: tuple[str, ...], labels: Sequence[str] = ()) -> None:
        self.rows[minted.id] = Token(
            id=minted.id,
            name=name,
            tenant="default",
            scopes=scopes,
            digest=minted.digest,
            created=0,
            expires=0,
            used=0,
            labels=tuple(labels),
        )


def test_each_start_makes_a_token_that_ends_the_earlier_one_in_a_file_of_the_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FakeTokens()
    store.create(tokens.mint(), name="runner-1", scopes=("admin",))
    monkeypatch.setattr(private_files, "token_store", lambda _url: store)
    monkeypatch.setattr(runner_token, "FILE", tmp_path / "runner_token")
    waited: list[str] = []
    waiting = threading.Thread(target=lambda: waited.append(runner_token.wait_for_token()))
    waiting.start()
    seen = set()
    for _ in range(2):
        runner_token.delete_token()
        for _ in range(2):
            runner_token.ensure("redis://")
        given = tokens.parse_credential((tmp_path / "runner_token").read_text().strip())
        assert given and given.matches(store.rows[given.id].digest)
        seen.add(given.id)
        assert len(store.rows) == 2, "the earlier one ended; a token of another scope did not"
        assert (tmp_path / "runner_token").stat().st_mode & 0o777 == 0o600
    waiting.join(30)
    assert len(seen) == 2 and len(waited) == 1
