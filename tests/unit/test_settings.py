"""Settings: names, aliases, addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import settings
from jobs.settings import Sentinel, Settings


def test_the_clients_address_is_stated_or_the_local_clusters_or_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(settings, "LOCAL_FOLDER", tmp_path)
    assert Settings().url() == "http://127.0.0.1:3000"
    (tmp_path / "url").write_text("http://127.0.0.1:3007\n")
    assert Settings().url() == "http://127.0.0.1:3007"
    monkeypatch.setenv("COORDINATOR_URL", "http://one:1/")
    assert Settings().url() == "http://one:1"
    monkeypatch.setenv("CLUSTER_URL", "http://two:2")
    assert Settings().url() == "http://two:2"


def test_lanes_are_the_cores_this_process_may_use_unless_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 3, 5})
    assert Settings().lanes() == 3
    monkeypatch.setenv("WORKER_THREADS", "7")
    assert Settings().lanes() == 7


def test_a_sentinel_address_is_taken_apart() -> None:
    place = Sentinel("redis+sentinel://:secret@a:1,b/main/2")
    assert place.hosts == [("a", 1), ("b", 26379)]
    assert (place.service, place.database, place.password) == ("main", 2, "secret")


@pytest.mark.parametrize(("name", "value"), [("COORDINATOR_PORT", "0"), ("GPU_ENABLED", "maybe"), ("NODE_ID", "a b")])
def test_a_wrong_setting_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=name.lower()):
        Settings()
