"""A Redis that dies and is replaced by its replica: what goes on, and what of the cluster follows the new master."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos.listener import Listener, position
from tests.integration.live import until
from tests.integration.sentinel import SentinelLive
from tests.integration.sentinel_kills import GOAL_SECONDS, strike


@pytest.mark.alone
def test_a_master_that_dies_under_load_costs_seconds_and_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Ten kills: `python -m tests.integration.sentinel_kills 10`."""
    live = SentinelLive(tmp_path, workers=1)
    try:
        live.start()
        first = live.submit("faulty", {"units": 3})
        listener = Listener([live.url()], newest(live), 1)
        listener.start()
        outcome = strike(live, submitters=1)
        assert outcome.is_good(), f"{outcome}; the goal is {GOAL_SECONDS} s"
        assert outcome.acknowledged > 10 and live.master() != 0
        follows_the_new_master(live, listener, first)
    finally:
        live.stop()


def newest(live: SentinelLive) -> str:
    [(place, _)] = live.redis().xrevrange("ct:events", count=1)
    return str(place.decode())


def follows_the_new_master(live: SentinelLive, listener: Listener, before: str) -> None:
    """Bells, the leader, listeners and the other replica. That the old master becomes one takes ten seconds more."""
    assert live.result(before)["sum"] == 3
    last = live.submit("faulty", {"units": 4})
    assert live.result(last)["sum"] == 6
    heard = newest(live)
    listener.catch_up(heard)
    listener.end()
    rounds = [0, *listener.anew, len(listener.ids)]
    for lo, hi in pairwise(rounds):
        places = [position(place) for place in listener.ids[lo:hi]]
        assert places == sorted(set(places)), "events came twice or out of order"
    assert position(listener.last) >= position(heard)
    with live.server(live.master()) as master:
        run_id = master.info("server")["run_id"].encode()
        until(lambda: (master.get("ct:rewritten") or b"").startswith(run_id))
        jobs = master.zrange("ct:jobs", 0, -1)
    [other] = {1, 2} - {live.master()}
    with live.server(other) as replica:
        until(lambda: replica.zrange("ct:jobs", 0, -1) == jobs)
