"""The lease protocol over the worker API: the state machine of test_lease_protocol.py, each call as its worker's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from jobs import queues
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.server.functions import Limits
from jobs.store.work import lease_tokens
from tests.contract.api_transport import OverApi, Served, serve
from tests.contract.lease_model import CLOCK, JobView, Worker
from tests.contract.test_lease_protocol import PICK, SETTINGS, TOTALS, LeaseMachine


@pytest.fixture
def served(any_redis_url: str) -> Iterator[Served]:
    with closing(connection.connect(any_redis_url, retries=0, timeout=30)) as client:
        store = Store(client, clock=CLOCK, limits=Limits(1, 1, 3))
        with serve(any_redis_url, store) as made:
            yield made


class ApiMachine(LeaseMachine):
    """Workers that reach the coordinator alone: they lease from the job that they hold, and from no other."""

    def __init__(self, url: str, served: Served) -> None:
        super().__init__(url)
        self.bench.store = OverApi(served)  # type: ignore[assignment]

    @initialize(
        totals=st.lists(TOTALS, min_size=2, max_size=2),
        want=st.integers(1, 3),
        shared=st.booleans(),
        ages=st.booleans(),
        units=st.sampled_from([0, 3, 50]),
    )
    def a_fleet_at_work(self, totals: list[int], want: int, shared: bool, ages: bool, units: int) -> None:
        """Redis' clock is steady: what a step of it does is the functions' business, whoever calls them."""
        super().a_fleet_at_work(totals, want, True, shared, ages, units)

    def _holds(self, worker: str, view: JobView) -> bool:
        return self.seen.slots.get(worker, ("", 0))[0] == view.job_id

    def _lease(self, worker: Worker, view: JobView, share: int, least: int, higher: bool) -> None:
        if self._holds(worker.name, view):
            super()._lease(worker, view, share, least, higher)
        else:
            above = queues.with_higher_priority(view.queue, worker.listened) if higher else ()
            call = lambda: self.bench.lease(view.job_id, 1, worker.name, least=least, higher=above)  # noqa: E731
            assert self._changes_nothing(call) == "gone"

    @precondition(lambda self: self._live())
    @rule(pick=PICK)
    def lease_again(self, pick: int) -> None:
        """While its worker holds the job."""
        token, view = self._token(pick)
        if self._holds(token.partition("/")[0], view):
            super().lease_again(pick)


def test_any_order_of_calls_over_the_api_keeps_the_invariants(
    any_redis_url: str, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def machine() -> LeaseMachine:
        made = ApiMachine(any_redis_url, served)
        monkeypatch.setattr(lease_tokens, "new", made.bench.new_token)
        monkeypatch.setattr("jobs.store.work.leases.secrets.randbelow", lambda _: 500)
        return made

    few = settings(SETTINGS, max_examples=max(settings().max_examples // 8, 1))
    factory: Any = machine  # hypothesis takes what makes a machine, and says that it takes a class alone
    run_state_machine_as_test(factory, settings=few)
