"""Tests a failover from a dead Redis to its replica: what continues, and what follows the new master."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jobs.store import Store
from tests.chaos.listener import Listener, position
from tests.integration.live import until
from tests.integration.sentinel import SentinelLive
from tests.integration.sentinel_kills import GOAL_SECONDS, strike
from tests.stuck_function import ENDLESS, call_endless


@pytest.mark.alone
def test_a_master_that_dies_under_load_costs_seconds_and_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """For ten kills, run `python -m tests.integration.sentinel_kills 10`."""
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


@pytest.mark.alone
def test_functions_are_loaded_again_after_a_failover_that_lost_them(tmp_path: Path) -> None:
    live = SentinelLive(tmp_path, workers=1)
    try:
        live.start()
        job = live.submit("faulty", {"units": 300, "seconds_per_unit": 0.01})
        until(lambda: live.job(job)["done"] > 0)
        with suspended(live, "coordinator-0"):
            lose_functions(live)
            with live.server(live.master()) as master:
                assert master.function_list() == [], "a worker loads none"
        assert live.result(job)["sum"] == sum(range(300))
        with live.server(live.master()) as master:
            assert len(master.function_list()) == 1
        assert "only coordinators load them" in live.log("worker-0")
        goes_on_when_a_function_does_not_end(live)
    finally:
        live.stop()


def has_no_functions(replica: Any) -> bool:
    return bool(replica.function_list() == [])


def lose_functions(live: SentinelLive) -> None:
    """Load the functions into a master that dies before a replica has them."""
    with live.server(0) as master:
        master.function_flush()
        for number in (1, 2):
            with live.server(number) as replica:
                until(partial(has_no_functions, replica))
        with suspended(live, "redis-1"), suspended(live, "redis-2"):
            master.config_set("min-replicas-to-write", 0)
            master.client_kill_filter(_type="replica")
            Store(master).libraries.load()
            assert len(master.function_list()) == 1
            live.kill_master()
    until(lambda: live.master() != 0)
    live.start_server(0)
    until(live.whole)


def goes_on_when_a_function_does_not_end(live: SentinelLive) -> None:
    """Sentinels consider a server down that has been busy for too long."""
    number = live.master()
    with live.server(number) as master:
        master.function_load(ENDLESS)
    threading.Thread(target=call_endless, args=(live.server_ports[number],), daemon=True).start()
    until(lambda: live.master() != number)
    assert live.result(until(lambda: submitted(live)))["sum"] == 3
    live.kill(f"redis-{number}")


def submitted(live: SentinelLive) -> str:
    """Return the ID of a new job, or nothing while no master accepts it."""
    answer = live.post("/api/submit", {"type": "faulty", "parameters": {"units": 3}})
    return str(answer.json()["job_id"]) if answer.status_code == 202 else ""


@contextmanager
def suspended(live: SentinelLive, name: str) -> Iterator[None]:
    process = live.processes[name]
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


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
