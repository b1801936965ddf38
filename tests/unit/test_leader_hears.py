"""The leader tells jobs that come after one that failed as soon as it hears of that, and not in its next round."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator import leader
from coordinator.events.event import Event
from coordinator.leader import Janitor
from jobs.store import Store, bells, connection
from tests.contract.lease_model import new_job
from tests.integration.live import until


@pytest.fixture
def janitor(any_redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Janitor]:
    """A leader that has no round within the time of a test."""
    monkeypatch.setattr(leader, "ROUND_SECONDS", 3600.0)
    store = Store(connection.connect(any_redis_url))
    bells.place_bells(store)
    made = Janitor(store)
    made.leading = True
    made.start()
    yield made
    made.stop()
    made.join(30)
    store.client.close()


def ended(state: str) -> Event:
    return Event(id="1-1", fields={"type": state, "state": state, "job": "root"})


def test_jobs_after_one_that_was_cancelled_hear_of_it_at_once(janitor: Janitor) -> None:
    store = janitor._store
    parents = [new_job(name, 10, "any.normal") for name in ("root", "other")]
    after = [new_job("any", 10, "any.normal", after_any=("root",)), new_job("ok", 10, "any.normal", after=("root",))]
    store.jobs.submit([*parents, *after])
    store.jobs.cancel("root")
    assert store.client.hget("ct:job:any", "state") == b"blocked"
    janitor.hear([ended("done")])  # Redis tells the children of these itself
    assert not janitor._woken.is_set()
    janitor.hear([ended("cancelled")])
    until(lambda: store.client.hmget("ct:job:any", "state") == [b"queued"])
    assert store.client.hget("ct:job:ok", "state") == b"skipped"


def test_who_does_not_lead_leaves_it_to_the_leader(janitor: Janitor) -> None:
    janitor.leading = False
    janitor.hear([ended("failed")])
    assert not janitor._woken.is_set()
