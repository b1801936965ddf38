"""Tests several tenants on a real cluster: admission, order, aging, the API and the command."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from coordinator.access.principal import Principal, Scope
from coordinator.jobs import submissions
from coordinator.jobs.scheduler import Fleet
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.tenancy.tenants import Tenant
from tests import fetch
from tests.hostile import wire
from tests.integration.live import Live, guarded, running, until

TOKEN = "a-token-of-the-tests"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start one worker with two lanes; jobs age after two seconds."""
    with running(tmp_path_factory.mktemp("cluster"), AGE_SECONDS="2") as live:
        yield live


@pytest.fixture
def store(cluster: Live) -> Iterator[Store]:
    store = Store(connection.connect(cluster.redis_url("coordinator")))
    yield store
    for tenant in store.tenants.names():
        store.tenants.put(Tenant(name=tenant))
    store.client.close()


def submit(store: Store, tenant: str, copies: int = 1) -> list[str]:
    """Submit small jobs of a tenant like the coordinator does for its principal."""
    principal = Principal(tenant=tenant, token="t", scopes=frozenset({Scope.SUBMIT}))
    asked = submissions.parse_submission({"type": "collatz", "parameters": {"start_number": 27, "number_count": 1}})
    jobs = [submissions.accept(asked, principal, Fleet(), Settings()).job for _ in range(copies)]
    return [answer[1] for answer in store.jobs.submit(jobs) if isinstance(answer, tuple)]


#: Small jobs of a second, of a worker that has a slow machine to itself: on one that is busy a second says little.
A_SECONDS_JOBS = 1000


# -- admission ------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_500_submits_against_a_cap_of_8_admit_exactly_8_while_a_coordinator_dies(tmp_path: Path) -> None:
    """The test runs ten times, and no admission is left over."""
    with guarded(tmp_path, TOKEN) as live:
        _ten_crowds(live)


def _ten_crowds(live: Live) -> None:
    keys = count()
    put = fetch.put(f"{live.url()}/api/tenants/default", json={"max_jobs": 8}, headers=AUTHORIZED)
    assert put.status_code == 200 and put.json()["max_jobs"] == 8
    for _ in range(10):
        admitted = _crowd(live, [f"k{next(keys)}" for _ in range(500)])
        [row] = fetch.get(f"{live.url(1)}/api/tenants", headers=AUTHORIZED).json()["tenants"]
        assert (row["jobs"], row["backlog"], len(admitted)) == (8, 0, 8)
        for job in admitted.values():
            fetch.post(f"{live.url(1)}/api/jobs/{job}/cancel", headers=AUTHORIZED)
        [row] = fetch.get(f"{live.url(1)}/api/tenants", headers=AUTHORIZED).json()["tenants"]
        assert row["jobs"] == 0, "no reservation is left over"


def _crowd(live: Live, keys: list[str]) -> dict[str, str]:
    """Submit a job for each key to both coordinators, one of which dies meanwhile; the job of each admitted key.

    Submits whose answer was lost are repeated with their key, as clients do. They are sent as bytes, because httpx
    takes milliseconds of CPU time for each.
    """
    answers: dict[str, wire.Answer] = {}
    seen = threading.Event()

    def ask(number: int, key: str) -> None:
        body = {"type": "collatz", "parameters": {"start_number": 27, "number_count": 1}, "idempotency_key": key}
        posted = wire.posted("/api/submit", json.dumps(body).encode(), **AUTHORIZED)
        for replica in (number % 2, 1):
            with suppress(OSError):
                answer = wire.send(live.ports[replica], posted)
                if answer.status > 0:
                    answers[key] = answer
                    break
        if len(answers) >= 100:
            seen.set()

    with ThreadPoolExecutor(16) as pool:
        for number, key in enumerate(keys):
            pool.submit(ask, number, key)
        seen.wait(30)
        live.kill("coordinator-0")
    live.start_coordinator(0)
    statuses = Counter(answer.status for answer in answers.values())
    assert set(statuses) == {202, 429} and sum(statuses.values()) == len(keys), statuses
    over = next(answer for answer in answers.values() if answer.status == 429)
    assert int(over.headers["retry-after"]) >= 1 and over.json()["field"] == "max_jobs"
    assert "tenant default has reached max_jobs: 8 of its jobs are queued or running" in over.json()["detail"]
    return {key: answer.json()["job_id"] for key, answer in answers.items() if answer.status == 202}


def test_a_held_job_waits_in_the_backlog_and_runs_when_there_is_room(cluster: Live, store: Store) -> None:
    store.tenants.put(Tenant(name="default", max_jobs=1))
    endless = {"start_number": "1", "number_count": 10**13}
    running_job = cluster.submit("collatz", endless)
    assert cluster.post("/api/submit", {"type": "faulty", "parameters": {"units": 3}}).status_code == 429
    held = cluster.submit("faulty", {"units": 3}, hold=True)
    job = cluster.job(held)
    assert job["state"] == "queued" and job["in_backlog"] is True
    why = "tenant default has reached max_jobs (1 queued or running jobs); the job is next in its backlog"
    until(lambda: cluster.job(held)["waiting_because"] == why)
    cluster.post(f"/api/jobs/{running_job}/pause")
    assert cluster.result(held) == {"sum": 3, "count": 3}
    again = cluster.submit("faulty", {"units": 10**6, "seconds_per_unit": 0.05})
    refused = cluster.post(f"/api/jobs/{running_job}/resume")
    assert refused.status_code == 429 and refused.json()["field"] == "max_jobs"
    assert cluster.post(f"/api/jobs/{running_job}/resume?hold=true").json()["in_backlog"] is True
    for each in (again, running_job):
        cluster.post(f"/api/jobs/{each}/cancel")


def test_a_tenant_over_its_units_waits_and_goes_on_when_the_cap_is_raised(cluster: Live, store: Store) -> None:
    cluster.result(cluster.submit("faulty", {"units": 3}))
    store.tenants.put(Tenant(name="default", max_units={"faulty": 2}))
    job = cluster.submit("faulty", {"units": 3})
    until(lambda: "has reached max_units" in (cluster.job(job)["waiting_because"] or ""))
    store.tenants.put(Tenant(name="default", max_units={"faulty": 10**9}))
    assert cluster.result(job) == {"sum": 3, "count": 3}


# -- order ----------------------------------------------------------------------------------------------------------


def drain(cluster: Live, on: bool) -> None:
    assert cluster.post("/api/workers/worker-0/drain", {"on": on}).status_code == 200
    if on:
        until(lambda: cluster.get("/api/workers")["workers"][0]["state"] == "drained")


def test_the_first_job_of_a_tenant_starts_within_a_second_beside_ten_thousand_of_another(
    cluster: Live, store: Store
) -> None:
    for tenant in ("crowd", "late"):
        store.tenants.put(Tenant(name=tenant))
    drain(cluster, on=True)  # else all of the crowd may be done before there is the other
    crowd = [job for _ in range(10) for job in submit(store, "crowd", copies=1000)]
    [job] = submit(store, "late")
    drain(cluster, on=False)
    until(lambda: cluster.job(job)["state"] == "done", 120)
    created, started = (int(store.job_reads.hashes([job])[0][1][name]) for name in (b"created", b"started"))
    others = [int(row[b"started"]) for _, row in store.job_reads.hashes(crowd) if b"started" in row]
    served = sum(created < each <= started for each in others)
    print(f"it waited for {started - created} ms and {served} of the others; {len(others)} of them have begun by now")
    assert served <= A_SECONDS_JOBS and len(others) < len(crowd), "the others are not done yet"
    for other in crowd:
        store.jobs.cancel(other)


def test_low_runs_beside_a_steady_high_stream_once_it_has_waited_for_its_age(cluster: Live, store: Store) -> None:
    high = cluster.submit("faulty", {"units": 10**6, "seconds_per_unit": 0.01}, priority="high")
    cluster.wait_for(high, "running")
    until(lambda: float(store.fleet_reads.load().work.get(b"cpu.high", 0)))  # the leader has seen that load
    began = time.monotonic()
    low = cluster.submit("faulty", {"units": 10**6, "seconds_per_unit": 0.01}, priority="low")
    reasons: list[str] = []

    def computed() -> bool:
        row = cluster.job(low)
        reasons.append(row["waiting_because"] or "")
        return bool(row["done"])

    until(computed)
    assert time.monotonic() - began >= 2, "its age"
    assert [why for why in reasons if "higher priority" in why] or len(reasons) < 5, reasons
    assert cluster.job(high)["state"] == "running"
    for job in (high, low):
        cluster.post(f"/api/jobs/{job}/cancel")


# -- units given up -------------------------------------------------------------------------------------------------


def test_units_given_up_are_listed_with_their_errors_and_tried_again(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 4, "fault": "raise", "at": 2})
    cluster.wait_for(job, "failed", 60)
    [row] = cluster.get(f"/api/jobs/{job}/dead")["jobs"]
    [dead] = row["ranges"]
    assert dead["first"] <= 2 <= dead["last"] and dead["errors"] == 4 and "asked to" in dead["error"]
    assert row in cluster.get("/api/dead")["jobs"]
    assert cluster.post(f"/api/jobs/{job}/dead/77/retry").status_code == 404
    again = cluster.post(f"/api/jobs/{job}/dead/{dead['first']}/retry")
    assert again.status_code == 200 and again.json()["state"] in ("queued", "running")
    cluster.wait_for(job, "failed", 60)
    assert cluster.get(f"/api/jobs/{job}/dead")["jobs"][0]["ranges"][0]["errors"] == 4
