"""Tests three coordinators behind nginx: leadership, equal responses, and restarts without failed requests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator.background import periodic_task
from jobs import metrics
from jobs.store import fleet
from tests.chaos import listener
from tests.chaos.campaign import events_after, last_event
from tests.integration.live import Live, running, until
from tests.integration.nginx_bench import Front, before
from tests.stack.load import Load

#: Some seconds of two lanes.
LONG: dict[str, Any] = {"units": 1000, "seconds_per_unit": 0.01}
#: Names of what all replicas say alike; but for an age, which grows between two readings.
ALIKE = {metric.name for metric in metrics.ALL if not metric.per_replica} - {metrics.WORKFLOWS_AGE.name}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start three coordinators at three addresses with the same port, and a worker."""
    with running(tmp_path_factory.mktemp("replicas"), coordinators=3, own_addresses=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def proxy(live: Live) -> Iterator[Front]:
    """Start nginx for all three coordinators."""
    with before(live.addresses, live.ports[0], REQUEST_RATE="10000", REQUEST_BURST="10000") as running_front:
        yield running_front


def leaders(live: Live) -> list[int]:
    """Return the numbers of the running replicas that report leadership."""
    return [number for number in living(live) if "\ncluster_leader 1.0" in live.metrics(number)]


def living(live: Live) -> list[int]:
    return [number for number in range(len(live.ports)) if f"coordinator-{number}" in live.processes]


def figures(live: Live, replica: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return a replica's metrics about the cluster, keyed by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(live.metrics(replica))
        if {family.name, f"{family.name}_total"} & ALIKE
        for sample in family.samples
    }


def test_leadership_is_promised_to_move_within_five_seconds() -> None:
    """Leadership expires, and each replica requests it once per round."""
    seconds = fleet.LEADER_TTL_MS / 1000 + periodic_task.INTERVAL_SECONDS
    assert seconds <= 5 - 0.5, "a round takes up to half a second"


def test_another_replica_leads_when_the_leader_is_killed(live: Live) -> None:
    [first] = until(lambda: len(found := leaders(live)) == 1 and found)
    live.kill(f"coordinator-{first}")
    [second] = until(lambda: len(found := leaders(live)) == 1 and found)
    assert second != first
    live.start_coordinator(first)
    until(lambda: len(leaders(live)) == 1)


def test_replicas_say_the_same_of_the_cluster(live: Live) -> None:
    live.result(live.submit("faulty", {"units": 20}))

    def alike() -> bool:
        """Return True if nothing changed between the first and last reading, and all replicas agree."""
        first, second, third, again = (figures(live, replica) for replica in (0, 1, 2, 0))
        return first == again and first == second == third

    assert len({name for name, _ in figures(live, 0)}) > 20
    until(alike)


def restart_everything(live: Live) -> None:
    """Restart the coordinators one by one as in an update, then the worker, and kill the leader."""
    for number in living(live):
        live.kill(f"coordinator-{number}", signal.SIGTERM)
        live.start_coordinator(number)
    live.start_worker(1)
    live.wait_ready(2)
    live.kill("worker-0", signal.SIGTERM)
    [leading] = until(lambda: len(found := leaders(live)) == 1 and found)
    live.kill(f"coordinator-{leading}")
    live.start_coordinator(leading)


@pytest.mark.timeout(240)
def test_a_restart_of_everything_fails_no_request_and_loses_no_job_and_no_event(live: Live, proxy: Front) -> None:
    since = last_event(live.redis())
    listening = listener.Listener([proxy.api], since, seed=15)
    listening.start()
    try:
        with Load(proxy.api, threads=4, pause=0.2, pages=False) as load:
            job = live.submit("faulty", LONG)
            until(lambda: live.job(job)["done"] > 0)
            restart_everything(live)
        assert load.failures == [] and load.requests > 50
        assert live.result(job) == {"sum": sum(range(LONG["units"])), "count": LONG["units"]}
        assert {live.result(one)["count"] for one in load.jobs} == {1} and len(load.jobs) > 20
        # It reconnects by itself, too: on a quiet machine all of this takes seconds.
        until(lambda: listening.connections > 4, 60)
        listening.catch_up(last_event(live.redis()))
    finally:
        listening.end()
    written = events_after(live.redis(), since)
    assert listener.problems(listening.ids, written, log_was_cut=False) == []
