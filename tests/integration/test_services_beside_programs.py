"""Tests services and programs on one runner: a service uses memory but no slot, and programs do not wait for it."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.store import Store
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tenants import Tenant
from tests import fetch
from tests.integration.live import Live, until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TOKEN = "t" * 40
RESERVE_SECONDS = 2
#: Program that answers every GET like a ready replica. Every user can start it.
SERVER = ["python3", "-m", "http.server", "{port}", "--bind", "127.0.0.1"]
#: Users of the two slots of a runner, and of one replica of a service.
USERS = "61200-61202"


class Person:
    """A tenant's user who serves models and submits jobs."""

    def __init__(self, live: Live, tenant: str) -> None:
        minted = tokens.mint()
        scopes = ("read", "submit", "run")
        assert Store(live.redis()).tokens.create(minted, name=tenant, scopes=scopes, tenant=tenant) == "new"
        self._url, self._headers = f"{live.url()}/api", {"Authorization": f"Bearer {minted.text}"}

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        answer = fetch.request(method, self._url + path, headers=self._headers, json=body, timeout=60)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def serve(self, name: str, **requirements: Any) -> None:
        parameters = {"command": SERVER, "health": "/"}
        body = {"name": name, "engine": "http", "parameters": parameters, "requirements": requirements}
        self._call("POST", "/services", body)

    def ready(self, name: str) -> None:
        until(lambda: self.service(name)["ready"] == 1, 60)

    def service(self, name: str) -> Any:
        return self._call("GET", f"/services/{name}")

    def why_waiting(self, name: str) -> str:
        """Return why the first replica of a service is not ready."""
        return "".join(str(row["because"]) for row in self.service(name)["running"][:1])

    def end_services(self) -> None:
        for row in self._call("GET", "/services")["services"]:
            self.end_service(row["name"])

    def end_service(self, name: str) -> None:
        self._call("DELETE", f"/services/{name}")

    def submit(self, command: str, **requirements: Any) -> str:
        parameters = {"command": command, "count": 1, "requirements": requirements}
        return str(self._call("POST", "/submit", {"type": "command", "parameters": parameters})["job_id"])

    def job(self, job: str) -> Any:
        return self._call("GET", f"/jobs/{job}")

    def reason(self, job: str) -> str:
        return str(self.job(job)["waiting_because"])

    def done(self, job: str) -> None:
        until(lambda: self.job(job)["state"] == "done", 60)

    def cancel(self, job: str) -> None:
        self._call("POST", f"/jobs/{job}/cancel")
        until(lambda: self.job(job)["state"] == "cancelled", 60)


@contextmanager
def cluster(folder: Path, **environment: Any) -> Iterator[Live]:
    """Start a cluster with tenants a and b, and a runner with two slots and 1,000 MiB."""
    with tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        live = Live(
            folder,
            workers=0,
            CLUSTER_TOKEN=TOKEN,
            ARTIFACT_URL=f"file://{folder}/artifacts",
            RESERVE_SECONDS=str(RESERVE_SECONDS),
            RUNNER_MEMORY_MIB="1000",
            **environment,
        )
        try:
            live.start_redis()
            live.start_coordinator()
            for tenant in ("a", "b"):
                Store(live.redis()).tenants.put(Tenant(name=tenant))
            live.start_runner(0, 2, RUNNER_DIR=f"{place}/runner")
            live.wait_ready(1)
            yield live
        finally:
            live.stop()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a cluster whose runner has one user for all programs."""
    with cluster(tmp_path_factory.mktemp("shared")) as made:
        yield made


@pytest.fixture
def alice(live: Live) -> Iterator[Person]:
    """Return a user of tenant a, whose services stop with the test."""
    person = Person(live, "a")
    yield person
    person.end_services()
    until(lambda: not worker(live)["running"], 60)


@pytest.fixture
def bob(live: Live) -> Person:
    return Person(live, "b")


def worker(live: Live) -> Any:
    return live.get("/api/workers")["workers"][0]


def test_a_service_takes_no_slot(alice: Person, live: Live) -> None:
    alice.serve("first")
    alice.ready("first")
    alice.done(alice.submit("true"))
    long = [alice.submit("sleep 600") for _ in range(2)]
    until(lambda: worker(live)["busy_lanes"] == 2)
    alice.serve("second")
    alice.ready("second")
    until(lambda: len(worker(live)["running"]) == 4)
    assert (worker(live)["lanes"], worker(live)["busy_lanes"]) == (2, 2)
    waits = alice.submit("true")
    alice.cancel(long[0])
    alice.done(waits)
    alice.cancel(long[1])
    assert alice.service("first")["ready"] == alice.service("second")["ready"] == 1


def test_services_and_programs_together_take_no_more_memory_than_there_is(alice: Person) -> None:
    alice.serve("large", memory_mib=600)
    alice.ready("large")
    alice.done(alice.submit("true", memory_mib=400))
    waits = alice.submit("true", memory_mib=500)
    until(
        lambda: (
            alice.reason(waits)
            == "starts when service large stops on runner-0; the job needs 500 MiB of memory, and 400 is left"
        )
    )
    alice.serve("larger", memory_mib=401)
    until(lambda: "starts when service large stops on runner-0; the job needs 401 MiB" in alice.why_waiting("larger"))
    alice.end_service("large")
    alice.ready("larger")
    alice.done(waits)


def test_no_runner_is_kept_for_a_job_that_waits_for_a_service_of_another_tenant(
    alice: Person, bob: Person, live: Live
) -> None:
    alice.serve("lasting")
    alice.ready("lasting")
    waits = bob.submit("true")
    until(lambda: "starts when a service of another tenant stops on runner-0; without RUNNER_UIDS" in bob.reason(waits))
    began = time.monotonic()
    while time.monotonic() - began < 4 * RESERVE_SECONDS:
        alice.done(alice.submit("true"))
        assert "reserved_for" not in worker(live) and "busy" not in bob.reason(waits)
    alice.end_service("lasting")
    bob.done(waits)


def test_a_job_says_that_the_runner_works_for_another_tenant_and_gets_its_turn(alice: Person, bob: Person) -> None:
    long = alice.submit("sleep 600")
    until(lambda: alice.job(long)["state"] == "running")
    waits = bob.submit("true")
    until(lambda: "runner-0 runs programs of another tenant" in bob.reason(waits))
    until(lambda: bob.reason(waits) == "starts when a program ends on runner-0, which is reserved for it")
    alice.cancel(long)
    bob.done(waits)


def test_a_job_that_waits_for_memory_can_be_cancelled_while_the_runner_is_kept_for_it(
    alice: Person, live: Live
) -> None:
    alice.serve("small", memory_mib=300)
    alice.ready("small")
    long = alice.submit("sleep 600", memory_mib=400)
    until(lambda: alice.job(long)["state"] == "running")
    waits = alice.submit("true", memory_mib=700)
    until(lambda: alice.reason(waits) == "starts when a program ends on runner-0, which is reserved for it")
    alice.cancel(waits)
    until(lambda: "reserved_for" not in worker(live))
    alice.cancel(long)
    alice.done(alice.submit("true", memory_mib=700))


def test_a_runner_that_is_killed_has_its_services_and_programs_again(tmp_path: Path) -> None:
    with cluster(tmp_path) as live:
        alice = Person(live, "a")
        alice.serve("kept", memory_mib=500)
        alice.ready("kept")
        waits = [alice.submit("sleep 2", memory_mib=300) for _ in range(4)]
        until(lambda: len(worker(live)["running"]) == 2)
        live.kill("runner-0")
        live.start_runner(0, 2)
        alice.ready("kept")
        for job in waits:
            alice.done(job)
        too_much = alice.submit("true", memory_mib=501)
        until(lambda: "starts when service kept stops on runner-0; the job needs 501 MiB" in alice.reason(too_much))


@pytest.mark.skipif(os.geteuid() != 0, reason="users need root")
def test_with_users_for_replicas_a_runner_works_for_several_tenants(tmp_path: Path) -> None:
    with cluster(tmp_path, RUNNER_UIDS=USERS) as live:
        alice, bob = Person(live, "a"), Person(live, "b")
        alice.serve("first")
        alice.ready("first")
        bob.done(bob.submit("true"))
        bob.serve("second")
        until(lambda: "starts when a service stops on runner-0; with RUNNER_UIDS" in bob.why_waiting("second"))
        bob.done(bob.submit("true"))
        alice.end_service("first")
        bob.ready("second")
