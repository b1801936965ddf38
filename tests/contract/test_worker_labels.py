"""Labels of hosts over HTTP: who gives them, and a worker that claims some which it was not given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from jobs import queues
from jobs.hosts.labels import MAX_LABELS
from jobs.models import Device
from jobs.store import Store, keys
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work.lease_store import Pulse
from jobs.store.work.slots import Held
from jobs.worker.api.api_store import ApiStore
from jobs.worker.telemetry.host import Host
from tests import fetch
from tests.contract.api_transport import Served
from tests.contract.lease_model import new_job

ROW: dict[str, Any] = {
    "device": "cpu",
    "state": "idle",
    "lanes": 2,
    "busy_lanes": 0,
    "job": "",
    "kinds": '{"sum": 1}',
    "pid": 7,
    "rates": "{}",
    **Host("here").figures(),
}
OFFER = {"cpus": 4, "memory_mib": 8000, "gpus": [], "host": "here", "labels": ["trusted"]}


@pytest.fixture
def admin(served: Served) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {served.token('boss', 'admin')}"}
    with httpx.Client(base_url=f"{served.place}/api", headers=headers, timeout=30) as client:
        yield client


def worker(served: Served, name: str, *labels: str, device: Device = Device.CPU, **row: Any) -> ApiStore:
    """A worker whose token has these labels, once the cluster has heard of it."""
    made = ApiStore(served.api(served.token(name, labels=labels)), device, 0.0)
    beat(made, device=device.value, **row)
    return made


def beat(made: ApiStore, **row: Any) -> None:
    made.pulse(Pulse(worker="", born=made.fleet.birth(), row=lambda: ROW | row))


def required(store: Store, queue: str = "any.normal", *labels: str, **more: Any) -> str:
    store.tenants.put(Tenant(name="a", requires=frozenset(labels or ("trusted",))))
    store.jobs.submit([new_job("j", 10, queue, tenant="a", **more)])
    return "j"


# -- what a worker says of itself -------------------------------------------------------------------------------------


def test_a_worker_that_claims_a_label_gets_nothing_by_it(served: Served, store: Store) -> None:
    job = required(store)
    liar = worker(served, "liar", "eu", labels="eu,trusted")
    assert store.client.hget(keys.worker("liar"), "labels") == b"eu"
    assert liar.slots.next("", queues.ALL) == "none"
    assert liar.leases.lease(job, "t", want=1, worker="") == "gone"
    assert liar.results.gather(job).spec is None
    honest = worker(served, "honest", "trusted")
    assert honest.slots.next("", queues.ALL) == Held(job_id=job)


def test_no_call_names_labels(served: Served, store: Store) -> None:
    required(store)
    headers = {"Authorization": f"Bearer {served.token('liar')}"}
    bodies = {"next": {"device": "cpu", "lanes": 1}, "lease": {"job": "j", "token": "t", "want": 1}, "register": {}}
    for call, body in bodies.items():
        answer = fetch.post(f"{served.place}/api/worker/{call}", json={**body, "labels": ["trusted"]}, headers=headers)
        assert answer.status_code == 422 and answer.json()["field"] == "labels"


def test_a_second_token_of_a_name_has_its_own_labels_alone(served: Served, store: Store) -> None:
    """The row of the name says what the other one's token gives."""
    job = required(store)
    worker(served, "twin", "trusted")
    other = ApiStore(served.api(served.token("twin")), Device.CPU, 0.0)
    assert other.slots.next("", queues.ALL) == "none"
    store.client.hset(keys.SLOT_JOBS, "twin", f"{job}|1")  # it holds the job, as the other
    assert other.leases.lease(job, "t", want=1, worker="") == "yield"


def test_a_slot_from_before_a_requirement_shows_nothing_more(served: Served, store: Store) -> None:
    """A worker that keeps it reads no partial results of others, nor the specification again."""
    job = required(store)
    store.tenants.put(Tenant(name="a", requires=frozenset()))
    plain, good = worker(served, "plain"), worker(served, "good", "trusted")
    assert plain.slots.next("", queues.ALL) == Held(job_id=job)
    assert plain.leases.lease(job, "t", want=1, worker="") != "yield" and plain.results.gather(job).spec is not None
    required_again = Tenant(name="a", requires=frozenset({"trusted"}))
    store.tenants.put(required_again)
    born = plain.fleet.birth()
    assert plain.pulse(Pulse(worker="", born=born, row=lambda: ROW, slot=True)).word == "ok"
    assert plain.results.gather(job).spec is None and plain.leases.lease(job, "u", want=1, worker="") == "yield"
    store.client.hset(keys.SLOT_JOBS, "good", f"{job}|1")
    assert good.results.gather(job).spec is not None


def test_a_runner_that_offers_a_label_gets_jobs_that_ask_for_it_and_no_tenant_that_requires_it(
    served: Served, store: Store
) -> None:
    required(store, "runner.normal", requirements={"labels": ["trusted"]})
    liar = worker(served, "liar", device=Device.RUNNER, offer=json.dumps(OFFER), isolation="uid")
    assert liar.slots.next("", queues.for_worker(Device.RUNNER), offer=OFFER) == "none"
    store.jobs.submit([new_job("own", 1, "runner.normal", requirements={"labels": ["trusted"]})])
    assert liar.slots.next("", queues.for_worker(Device.RUNNER), offer=OFFER) == Held(job_id="own")
    good = worker(served, "good", "trusted", device=Device.RUNNER, offer=json.dumps(OFFER | {"labels": []}))
    asked = good.slots.next("", queues.for_worker(Device.RUNNER), offer=OFFER | {"labels": []})
    assert asked == Held(job_id="j"), "what the operator gave is what jobs may ask for, too"
    assert json.loads(store.client.hget(keys.worker("good"), "offer") or "")["labels"] == ["trusted"]


# -- who gives them ---------------------------------------------------------------------------------------------------


def test_a_host_has_the_labels_of_its_invitation(served: Served, store: Store, admin: httpx.Client) -> None:
    body = {"name": "invitation", "scopes": ["join"], "labels": ["trusted", "eu", "eu"]}
    made = admin.post("/tokens", json=body).json()
    assert made["labels"] == ["eu", "trusted"]
    answer = fetch.post(
        f"{served.place}/api/join",
        json={"host": "box", "workers": ["cpu-1"]},
        headers={"Authorization": f"Bearer {made['token']}"},
    )
    assert answer.status_code == 201, answer.text
    joined = ApiStore(served.api(answer.json()["workers"][0]["token"]), Device.CPU, 0.0)
    beat(joined, host="box")
    [row] = [row for row in admin.get("/hosts").json()["hosts"] if row["host"] == "box"]
    assert (row["given_labels"], row["labels"]) == (["eu", "trusted"], [])
    [token] = [row for row in admin.get("/tokens").json()["tokens"] if row["name"] == "box-cpu-1"]
    assert token["labels"] == ["eu", "trusted"]
    required(store)
    assert joined.slots.next("", queues.ALL) == Held(job_id="j")


def test_a_host_cannot_name_labels_as_it_joins(served: Served, admin: httpx.Client) -> None:
    made = admin.post("/tokens", json={"name": "invitation", "scopes": ["join"]}).json()
    body = {"host": "box", "workers": ["cpu-1"], "labels": ["trusted"]}
    answer = fetch.post(f"{served.place}/api/join", json=body, headers={"Authorization": f"Bearer {made['token']}"})
    assert answer.status_code == 422 and answer.json()["field"] == "labels"


def test_labels_out_of_bounds_are_refused(admin: httpx.Client) -> None:
    wrong: list[Any] = [
        "trusted",
        ["a,b"],
        ["a+b"],
        ["a=b"],
        [""],
        ["x" * 65],
        [1],
        [str(n) for n in range(MAX_LABELS + 1)],
    ]
    for labels in wrong:
        body = {"name": "w", "scopes": ["worker"], "labels": labels}
        calls = (admin.post("/tokens", json=body), admin.put("/tenants/a", json={"requires": labels}))
        for answer, field in zip(calls, ("labels", "requires"), strict=True):
            assert answer.status_code == 422 and answer.json()["field"].partition(".")[0] == field, labels
    for scopes in (["read"], ["worker", "read"], ["admin"]):
        answer = admin.post("/tokens", json={"name": "w", "scopes": scopes, "labels": ["trusted"]})
        assert answer.status_code == 422 and answer.json()["field"] == "labels", scopes


def test_what_is_left_out_stays_and_is_in_the_audit_log(admin: httpx.Client) -> None:
    assert admin.put("/tenants/a", json={"requires": ["trusted", "eu"]}).json()["requires"] == ["eu", "trusted"]
    assert admin.put("/tenants/a", json={"weight": 3}).json()["requires"] == ["eu", "trusted"]
    entries = [json.loads(line) for line in admin.get("/audit").json()["lines"]]
    outcomes = [entry["outcome"] for entry in entries if entry.get("action") == "tenant"]
    assert any(outcome.endswith("requires eu trusted") for outcome in outcomes), outcomes
    assert admin.put("/tenants/a", json={"requires": []}).json()["requires"] == []


# -- what waits says why ----------------------------------------------------------------------------------------------


def test_a_job_that_no_host_may_compute_says_which_labels_are_missing(
    served: Served, store: Store, admin: httpx.Client
) -> None:
    worker(served, "plain", "eu")
    required(store)
    said = admin.get("/jobs/j").json()["waiting_because"]
    assert "requires hosts with the labels trusted" in said and "invite --labels trusted" in said
    made = worker(served, "good", "trusted")
    assert made.slots.next("", queues.ALL) == Held(job_id="j")
