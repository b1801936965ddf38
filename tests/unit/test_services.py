"""Tests services over HTTP on a real Redis, with manual rounds of the leader."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from coordinator.composition import on_behalf_of
from coordinator.services import missing_workers, usage_statistics
from coordinator.services.gateway import request_counter, routing
from coordinator.services.reconciler import Reconciler
from coordinator.services.usage_statistics import Exchange
from coordinator.telemetry.exporter import Exporter
from engines import registry
from jobs.store import Store, keys
from jobs.store.server import connection
from jobs.store.services import Asked, Service, job_id
from tests.unit.engine_fake import until as eventually
from tests.unit.service_requests import stored_request
from tests.unit.test_webhooks import Api

BODY = {"name": "web", "engine": "http", "parameters": {"command": ["./server", "--port", "{port}"], "health": "/up"}}

NOT_REACHED = (
    "this coordinator cannot reach it: runner-1 listens only on its own host, and this coordinator is on another host: "
    "set its SERVICE_ADDRESS"
)


class Served(Api):
    """An application, its leader's reconciler, and a fake runner that reports given states."""

    def __init__(self, redis_url: str) -> None:
        super().__init__(redis_url)
        self.maker = self.token("run", "submit", "read", "infer")
        self.leader = self.lead(self.store)

    def lead(self, store: Store) -> Reconciler:
        cluster = self.app.state.coordinator.cluster
        return Reconciler(store, on_behalf_of(store, self.settings, cluster.queries, cluster.artifacts))

    def serve(self, **more: Any) -> Any:
        return self.ask("POST", "/api/services", {**BODY, **more}, self.maker)

    def exporter(self) -> Exporter:
        return Exporter(self.app.state.coordinator.cluster.queries, lambda: True)

    def row(self, name: str = "web") -> Any:
        answer = self.ask("GET", f"/api/services/{name}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def jobs(self, name: str = "web") -> list[str]:
        return [each["job_id"] for each in self.row(name)["running"]]

    def run(self, job: str, state: str = "ready", **more: Any) -> None:
        """Lease a replica like a runner, and report its state."""
        client = self.store.client
        client.zadd(keys.WORKERS, {more.get("worker", "runner-1"): self.store.clock.now() * 1000 + 600_000})
        client.hset(keys.job(job), "state", "running")
        client.hset(keys.job_lease(job), f"runner-1/{job}", "0:1:0:0:0:0:runner-1/0")
        fields: dict[str, Any] = {"state": state, "why": "", "key": "k" * 16}
        fields |= {"address": "127.0.0.1", "port": 9, "host": "h"}
        assert self.store.services.report(job, f"runner-1/{job}", {**fields, "worker": "runner-1", **more})

    def die(self, job: str, error: str = "exit code 3") -> None:
        client = self.store.client
        client.hset(keys.job(job), "state", "failed")
        client.hset(keys.job_failures(job), "0", json.dumps({"error": error}))

    def skip(self, name: str = "web") -> None:
        """End the wait before the next replica."""
        service = self.store.services.one("default", name)
        assert service
        self.store.client.hset(keys.service(service.service_id), "retry_at", 0)


@pytest.fixture
def api(any_redis_url: str) -> Iterator[Served]:
    served = Served(any_redis_url)
    yield served
    served.store.client.close()


@pytest.fixture
def both(redis_url: str) -> Iterator[Served]:
    served = Served(redis_url)
    yield served
    served.store.client.close()


def test_a_service_has_as_many_replicas_as_are_wanted_and_says_how_they_are(
    both: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "FRESH_SECONDS", 0.0)
    made = both.serve(replicas=2)
    assert made.status_code == 201, made.text
    assert (made.json()["state"], made.json()["running"]) == ("waiting", [])
    both.leader.run_once()
    row = both.row()
    assert [each["state"] for each in row["running"]] == ["waiting", "waiting"]
    assert "runner" in row["running"][0]["because"]
    first, second = both.jobs()
    both.run(first, "starting", why="/up does not answer")
    both.run(second)
    row = both.row()
    assert [(each["state"], each["because"]) for each in row["running"]] == [
        ("starting", "/up does not answer"),
        ("ready", NOT_REACHED),
    ]
    assert both.ask("GET", "/api/services").json()["services"][0]["running"] == row["running"]
    assert (row["state"], row["ready"], row["replicas"]) == ("ready", 1, 2)
    assert "k" * 16 not in json.dumps(row), "the key of a replica is shown to nobody"
    for _ in range(3):
        both.leader.run_once()
    assert both.jobs() == [first, second]


def test_jobs_of_replicas_are_listed_apart_and_submitted_by_nobody_else(api: Served) -> None:
    api.serve()
    api.leader.run_once()
    [job] = api.jobs()
    assert api.ask("GET", "/api/jobs").json()["jobs"] == []
    [listed] = api.ask("GET", "/api/jobs?type=service").json()["jobs"]
    assert (listed["job_id"], listed["title"]) == (job, "web")
    assert "service" not in [kind["type"] for kind in api.ask("GET", "/api/job-types").json()["kinds"]]
    parameters = {"service": "x", "engine": "http", "command": ["true"]}
    body = {"type": "service", "parameters": parameters}
    refused = api.ask("POST", "/api/submit", body, api.maker)
    assert (refused.status_code, refused.json()["field"]) == (422, "type")
    schedule = {"name": "s", "every_seconds": 60, "job": body}
    assert api.ask("POST", "/api/schedules", schedule, api.maker).status_code == 422


def test_a_replica_that_dies_is_followed_by_another_after_a_while_and_its_log_stays(both: Served) -> None:
    both.serve(replicas=2)
    both.leader.run_once()
    first, stays = both.jobs()
    both.run(first)
    both.run(stays)
    both.die(first)
    both.leader.run_once()
    both.leader.run_once()
    row = both.row()
    assert both.jobs() == [stays] and row["ready"] == 1
    assert (row["failures"], row["last_failure"], row["last_dead_job_id"]) == (1, "exit code 3", first)
    assert row["next_start"] > row["created"]
    both.skip()
    both.leader.run_once()
    [_, third] = both.jobs()
    assert third == job_id(first.split("-")[1], 3), "a number is used once"
    both.die(third, "no")
    both.leader.run_once()
    assert both.row()["failures"] == 2 and both.row()["last_dead_job_id"] == third
    assert both.store.job_reads.states([first]) == [None], "of the dead the last one is kept"


class Killed(Exception):
    """The leader dies here."""


@pytest.mark.parametrize("after", range(1, 8))
def test_a_leader_that_dies_at_any_call_is_followed_by_one_that_goes_on(
    api: Served, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Two replicas are wanted, one of two has died, and one of another service is to end."""
    api.serve(replicas=2)
    api.serve(name="other", replicas=1)
    api.leader.run_once()
    for job in (*api.jobs(), *api.jobs("other")):
        api.run(job)
    api.die(api.jobs()[0])
    api.ask("POST", "/api/services/other/stop", token=api.maker)
    left = [after]

    def counted(call: Any) -> Any:
        def counting(*given: Any, **named: Any) -> Any:
            answer = call(*given, **named)
            left[0] -= 1
            if not left[0]:
                raise connection.Unreachable[0]("the leader dies")  # errors that end a round at once
            return answer

        return counting

    dying = Store(connection.connect(api.redis_url))
    for part, names in ((dying.services, ("place", "retire", "end")), (dying.jobs, ("submit", "cancel", "delete"))):
        for name in names:
            monkeypatch.setattr(part, name, counted(getattr(part, name)))
    leader = api.lead(dying)
    for _ in range(3):
        try:
            leader.run_once()
        except connection.Unreachable:
            break
        api.skip()
    for _ in range(4):
        api.skip()
        api.leader.run_once()
    jobs = api.jobs()
    assert len(jobs) == len(set(jobs)) == 2
    queued = [state for state in api.store.job_reads.states(jobs) if state in ("queued", "running")]
    assert len(queued) == 2 and api.row()["failures"] == 1
    assert [each["state"] for each in api.row("other")["running"]] in ([], ["stopping"])
    dying.client.close()


def test_two_leaders_at_once_begin_no_replica_twice(api: Served) -> None:
    api.serve(replicas=3)
    first, second = api.lead(api.store), api.lead(api.store)
    [service] = api.store.services.all()
    assert api.store.services.place(service.service_id, 1, 1)
    assert not api.store.services.place(service.service_id, 1, 1), "who comes late begins none"
    first.run_once()
    second.run_once()
    assert len(api.jobs()) == 3


def test_a_replica_that_is_to_end_gets_no_requests_and_is_cancelled_when_it_has_none(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.services.reconciler.planning.SETTLE_MS", 0)
    api.serve()
    api.leader.run_once()
    [job] = api.jobs()
    api.run(job)
    api.store.services.count_busy("c1", {job: 2})
    api.store.services.count_busy("c2", {job: 1})
    assert api.row()["running"][0]["requests"] == 3
    assert api.ask("POST", "/api/services/web/stop", token=api.maker).json()["replicas"] == 0
    for _ in range(3):
        api.leader.run_once()
    assert api.row()["running"][0]["state"] == "stopping"
    assert api.store.job_reads.states([job]) == ["running"]
    api.store.services.count_busy("c1", {job: 0})
    api.store.services.count_busy("c2", {job: 0})
    api.leader.run_once()
    assert api.store.job_reads.states([job]) in (["cancelling"], ["cancelled"])
    api.store.client.hset(keys.job(job), "state", "cancelled")
    api.leader.run_once()
    assert api.row()["state"] == "stopped" and api.row()["failures"] == 0
    assert api.ask("POST", "/api/services/web/scale", {"replicas": 1}, api.maker).json()["replicas"] == 1
    api.leader.run_once()
    assert api.jobs() == [job_id(job.split("-")[1], 2)]


def test_who_has_no_lease_says_nothing_of_a_replica(api: Served) -> None:
    api.serve()
    api.leader.run_once()
    [job] = api.jobs()
    api.run(job)
    assert not api.store.services.report(job, "runner-2/x", {"state": "ready", "address": "10.0.0.1"})
    assert api.row()["running"][0]["worker"] == "runner-1"


def test_what_keeps_one_service_from_going_on_keeps_no_other(api: Served) -> None:
    api.serve(name="broken")
    api.serve()
    broken = api.store.services.one("default", "broken")
    assert broken
    api.store.client.hset(keys.service(broken.service_id), "job", "{not json")
    api.leader.run_once()
    assert len(api.jobs()) == 1


def test_a_replica_that_is_refused_is_tried_again_later_and_says_why(api: Served) -> None:
    api.serve()
    service = api.store.services.one("default", "web")
    assert service
    body = json.loads(service.job)
    body["parameters"]["files"] = "0" * 64  # as if its artifact was lost
    api.store.client.hset(keys.service(service.service_id), "job", json.dumps(body))
    api.leader.run_once()
    row = api.row()
    assert row["running"] == [] and row["failures"] == 1 and "rejected" in row["last_failure"]
    api.store.client.hset(keys.service(service.service_id), "job", service.job)
    api.skip()
    api.leader.run_once()
    assert len(api.jobs()) == 1


@pytest.mark.parametrize(
    ("given", "field", "why"),
    [
        ({"name": "A"}, "name", ""),
        ({"name": "a" * 64}, "name", ""),
        ({"name": "-a"}, "name", ""),
        ({"engine": "nosuch"}, "engine", "http, llamacpp"),
        ({"replicas": 101}, "replicas", "100"),
        ({"replicas": -1}, "replicas", "0"),
        ({"replicas": True}, "replicas", ""),
        ({"parameters": {}}, "parameters.command", "required"),
        ({"parameters": {"command": []}}, "parameters.command", ""),
        ({"parameters": {"command": ["x"], "more": 1}}, "parameters.more", "not a known field"),
        ({"parameters": {"command": ["x"], "health": "up"}}, "parameters.health", "start with /"),
        ({"parameters": {"command": ["x"], "env": {"CLUSTER_KEY": "x"}}}, "parameters.env", "CLUSTER_"),
        ({"requirements": {"gpus": 0}}, "requirements.gpus", "1"),
        ({"requirements": {"size": 1}}, "requirements.size", "not a known field"),
        ({"priority": "urgent"}, "priority", "high, normal, low"),
        ({"request_timeout_seconds": 0}, "request_timeout_seconds", "1"),
        ({"max_concurrent_requests": 0}, "max_concurrent_requests", "1"),
        ({"more": 1}, "more", "not a known field"),
        ({"engine": "llamacpp", "parameters": {}}, "model", "GGUF"),
    ],
)
def test_a_wrong_service_is_refused_by_field_and_nothing_is_stored(
    api: Served, given: dict[str, Any], field: str, why: str
) -> None:
    answer = api.serve(**given)
    assert (answer.status_code, answer.json().get("field")) == (422, field), answer.text
    assert why in answer.text
    assert api.store.client.scard(keys.SERVICES) == 0


def test_services_are_their_tenants_and_need_the_scope_run(api: Served) -> None:
    api.ask("PUT", "/api/tenants/a", {})
    mine, theirs = api.token("run", "read", "infer", tenant="a"), api.token("run", "submit", "read", "infer")
    assert api.ask("POST", "/api/services", BODY, mine).json()["tenant"] == "a"
    assert api.ask("POST", "/api/services", {**BODY, "name": "x"}, api.token("submit", "read")).status_code == 403
    assert api.ask("GET", "/api/services", token=theirs).json() == {"services": []}
    assert api.ask("GET", "/api/services?tenant=a", token=theirs).status_code == 403
    for method, path in (("DELETE", "web"), ("POST", "web/restart"), ("POST", "web/stop"), ("GET", "web")):
        assert api.ask(method, f"/api/services/{path}", token=theirs).status_code == 404
    assert api.ask("POST", "/api/services/web/scale", {"replicas": 3}, theirs).status_code == 404
    assert api.ask("GET", "/v1/models", token=theirs).json()["data"] == []
    assert [one["id"] for one in api.ask("GET", "/v1/models", token=mine).json()["data"]] == ["web"]
    api.leader.run_once()
    [job] = [each["job_id"] for each in api.ask("GET", "/api/services?tenant=a").json()["services"][0]["running"]]
    assert api.ask("GET", f"/api/jobs/{job}", token=theirs).status_code == 404
    assert api.serve().status_code == 201, "each tenant has its own names"
    assert api.serve().status_code == 409


def test_a_deleted_service_frees_its_name_at_once_and_its_replicas_end(both: Served) -> None:
    both.serve()
    both.leader.run_once()
    [job] = both.jobs()
    assert both.ask("DELETE", "/api/services/web", token=both.maker).status_code == 204
    assert both.ask("DELETE", "/api/services/web", token=both.maker).status_code == 404
    assert both.serve().status_code == 201
    for _ in range(4):
        both.leader.run_once()
    assert both.store.job_reads.states([job]) == [None] and both.jobs() != [job]
    assert both.store.client.scard(keys.SERVICES) == 1
    assert list(both.store.client.scan_iter(f"*{job.split('-')[1]}*")) == []


def test_what_is_read_for_a_tenant_is_its_own_whatever_others_serve(
    both: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "FRESH_SECONDS", 0.0)
    store, asked = both.app.state.coordinator.cluster.store, list[str]()
    stored, real = store.services, store.functions.replies

    def replies(*commands: Sequence[str]) -> list[Any]:
        asked.extend(word for command in commands for word in command)
        return list(real(*commands))

    for tenant, digit in (("a", "1"), ("b", "2")):
        assert both.ask("PUT", f"/api/tenants/{tenant}", {}).is_success
        for number, engine in enumerate(("http", "http", "dask")):
            made = Service(
                service_id=f"{digit}{number:011}",
                tenant=tenant,
                name=f"s-{number}",
                engine=engine,
                asked=json.dumps(stored_request()),
            )
            assert stored.add(made) == ("new", made.service_id)
    ids = [f"1{number:011}" for number in range(3)]
    token = both.token("read", "infer", "run", tenant="a")
    monkeypatch.setattr(store.functions, "replies", replies)
    for path, with_replicas in (("/v1/models", 2), ("/v1/models/s-1", 2), ("/api/services", 3)):
        asked.clear()
        answer = both.ask("GET", path, token=token)
        assert answer.status_code == 200, answer.text
        assert set(re.findall(r"[12]0{10}\d", " ".join(asked))) == set(ids), path
        assert {one for one in ids if keys.service_replicas(one) in asked} == set(ids[:with_replicas]), path
    assert both.ask("DELETE", "/api/services/s-0", token=token).status_code == 204
    assert [one["id"] for one in both.ask("GET", "/v1/models", token=token).json()["data"]] == ["s-1"]


def test_errors_under_v1_are_problems_and_what_openais_clients_read(api: Served) -> None:
    api.serve()
    for token, status, code in (("wrong", 401, "invalid_api_key"), (api.token("read"), 403, None)):
        answer = api.ask("GET", "/v1/models", token=token)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert answer.json()["status"] == status and answer.headers["content-type"] == "application/problem+json"
    for body, status, code in (
        ({"model": "web"}, 503, "no_ready_replica"),
        ({"model": "x"}, 404, "model_not_found"),
        ({}, 400, None),
        ([], 400, None),
    ):
        answer = api.ask("POST", "/v1/chat/completions", body, api.maker)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert api.ask("GET", "/v1/models/x", token=api.maker).status_code == 404
    assert api.ask("GET", "/v1/metrics", token=api.maker).status_code == 404


def _exchange(model: str, *, tokens: int = 0, status: int = 200, service: str = "") -> Exchange:
    return Exchange(
        tenant="default",
        model=model,
        service=service,
        began=0.0,
        status=status,
        seconds=1.0,
        prompt_tokens=2 * tokens,
        answer_tokens=tokens,
    )


def test_what_was_asked_is_counted_once_by_tenant_and_model(both: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is also correct if the response to a write is lost, or if the coordinator exits."""
    monkeypatch.setattr(request_counter, "WRITE_SECONDS", 0.01)
    count, calls = both.store.services.count, list[int]()

    def losing(*given: Any) -> bool:
        answer = count(*given)
        calls.append(given[1])
        if len(calls) < 3:
            raise connection.Unreachable[0]("the answer is lost")
        return answer

    monkeypatch.setattr(both.store.services, "count", losing)
    counter = request_counter.RequestCounter(both.store.services, both.exporter())

    async def ask() -> None:
        counter.add(_exchange("chat", tokens=5))
        counter.add(_exchange("chat", tokens=6))
        await eventually(lambda: len(calls) >= 3)
        counter.add(_exchange("chat", tokens=1, status=499))
        counter.add(_exchange("other", status=503))
        await counter.close()

    asyncio.run(ask())
    assert calls == [1, 1, 1, 2]
    [row] = both.ask("GET", "/api/usage").json()["usage"]
    assert (row["requests"], row["prompt_tokens"], row["answer_tokens"]) == ({"chat": 3}, {"chat": 24}, {"chat": 12})


def test_the_last_minute_is_that_of_all_coordinators_and_a_batch_counts_once(both: Served) -> None:
    both.serve()
    service = both.store.services.one("default", "web")
    assert service
    store = both.store.services

    def count(coordinator: str, number: int, *ended: Exchange) -> bool:
        asked = Asked(requests=len(ended))
        for one in ended:
            asked.figures.update(usage_statistics.counts(one))
        return store.count(coordinator, number, {("default", "web", service.service_id): asked})

    answered, refused = _exchange("web", tokens=30), _exchange("web", status=503)
    assert count("a", 1, answered, refused) and count("b", 1, answered)
    assert not count("b", 1, answered), "its answer was lost, and it is sent again"
    row = both.row()["last_minute"]
    assert (row["requests"], row["failed"], row["prompt_tokens"], row["answer_tokens"]) == (3, 1, 120, 60)
    assert row["requests_per_second"] == pytest.approx(3 / row["seconds"], rel=0.1)
    assert 0.95 < row["median_seconds"] < 1.05
    # Older entries are neither shown nor kept.
    key, client = keys.service_figures(service.service_id), both.store.client
    slot = int(both.store.clock.now()) // 10
    client.hset(key, mapping={f"{slot - 8}|requests": 100, f"{slot - 2}|requests": 10, "slot": 1})
    assert both.row()["last_minute"]["requests"] == 13
    assert count("a", 2, answered) and both.row()["last_minute"]["requests"] == 14
    assert not client.hexists(key, f"{slot - 8}|requests") and 0 < client.pttl(key) <= 90_000
    # A broken entry is skipped.
    client.hset(key, mapping={"x|requests": 1, f"{slot}|failed": "many"})
    assert both.row()["last_minute"]["requests"] == 14


def test_a_replica_says_what_it_computes_on_and_how_much_memory_it_has(both: Served) -> None:
    both.serve(replicas=2)
    both.leader.run_once()
    first, second = both.jobs()
    both.run(first, memory_bytes=5 << 30, devices="NVIDIA H200 GPU-1;NVIDIA H200 GPU-2")
    both.run(second)
    told = [(each["devices"], each["memory_bytes"]) for each in both.row()["running"]]
    assert told == [(["NVIDIA H200 GPU-1", "NVIDIA H200 GPU-2"], 5 << 30), (None, None)]


def test_metrics_name_so_many_models_and_no_more(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.services.gateway.request_counter.metrics.MAX_TENANTS", 2)
    exporter = api.exporter()
    counter = request_counter.RequestCounter(api.store.services, exporter)
    for model in ("a", "b", "c", "d", "a"):
        counter.export(_exchange(model, tokens=1, status=503))
    [family] = exporter.inferences.collect()
    counts = {sample.labels["model"]: sample.value for sample in family.samples if sample.name.endswith("_total")}
    assert counts == {"a": 2, "b": 1, "other": 2}


@pytest.mark.parametrize(
    ("given", "field", "why"),
    [
        ({}, "model", "artifact tiny does not exist"),
        ({"model_name": "org/repo"}, "model_name", "cluster model download repo --source hf://org/repo --wait"),
        ({"model_name": "é"}, "model_name", "must contain a letter or a digit"),
        ({"max_memory_per_gpu": "12GB"}, "max_memory_per_gpu", "needs gpu_per_replica"),
        ({"max_memory_per_gpu": "much", "gpu_per_replica": 1}, "max_memory_per_gpu", "such as 12GB"),
        ({"sharding_strategy": "magic"}, "sharding_strategy", "tensor_parallel"),
        ({"replicas": 101}, "replicas", "100"),
        ({"model_size": 7}, "model_size", "string"),
        ({"more": 1}, "more", "not a known field"),
    ],
)
def test_a_wrong_deployment_is_refused_by_field(api: Served, given: dict[str, Any], field: str, why: str) -> None:
    answer = api.ask("POST", "/api/llm/models/deploy", {"model_name": "tiny", **given}, api.maker)
    assert answer.status_code in (404, 422) and answer.json()["field"] == field and why in answer.text, answer.text


def test_a_deployment_is_asked_steered_and_listed_as_the_service_that_it_is(api: Served) -> None:
    api.serve()
    asked = api.ask("POST", "/api/llm/models/web/inference", {"prompt": "x"}, api.maker)
    assert asked.status_code == 503 and asked.json()["waiting_because"]
    assert api.ask("POST", "/api/llm/models/web/inference", {"prompt": ""}, api.maker).json()["field"] == "prompt"
    assert api.ask("POST", "/api/llm/models/no/inference", {"prompt": "x"}, api.maker).status_code == 404
    assert api.ask("POST", "/api/llm/models/web/scale", {"replicas": 3}, api.maker).json()["replicas"] == 3
    assert api.ask("POST", "/api/llm/models/web/restart", token=api.maker).status_code == 200
    assert api.ask("POST", "/api/llm/models/web/stop", token=api.maker).json()["state"] == "stopped"
    assert [row["name"] for row in api.ask("GET", "/api/llm/models").json()["services"]] == ["web"]


def test_a_service_sleeps_when_nobody_asks_and_wakes_for_whoever_does(api: Served) -> None:
    assert api.serve(idle_seconds=60, replicas=2).status_code == 201
    api.leader.run_once()
    assert api.row()["replicas"] == 2 and len(api.jobs()) == 2
    service = api.store.services.one("default", "web")
    assert service
    api.store.client.hset(keys.service(service.service_id), "asked_at", 1)
    for _ in range(3):
        api.leader.run_once()  # they are taken out of the route, their jobs end, and are forgotten
    row = api.row()
    assert (row["state"], row["replicas"], row["running"]) == ("asleep", 0, [])
    api.store.client.hset(keys.service(service.service_id), "asked_at", 0)
    api.store.services.ask("c", {service.service_id: 0}, ())
    assert api.row()["state"] == "asleep", "a request that ended wakes none that was scaled to none"
    assert api.store.services.ask("c", {service.service_id: 1, "nosuch": 1}, {service.service_id}) == 1
    api.leader.run_once()
    assert api.row()["replicas"] == 2 and api.row()["requests"] == 1 and len(api.jobs()) == 2
    assert api.store.client.ttl(keys.service_asked(service.service_id)) > 0
    assert not api.store.client.exists(keys.service("nosuch"))


def test_a_service_is_scaled_by_the_requests_of_all_coordinators(api: Served) -> None:
    assert api.serve(autoscale={"min": 1, "max": 3, "target": 2}).status_code == 201
    api.leader.run_once()
    assert len(api.jobs()) == 1
    service = api.store.services.one("default", "web")
    assert service
    for coordinator in "ab":
        api.store.services.ask(coordinator, {service.service_id: 2}, ())
    api.leader.run_once()
    assert len(api.jobs()) == 2 and api.row()["replicas"] == 2
    for coordinator in "ab":
        api.store.services.ask(coordinator, {service.service_id: 0}, ())
    api.store.client.hset(keys.service(service.service_id), "needed_at", 1)
    api.leader.run_once()
    assert api.row()["replicas"] == 1


def test_two_leaders_and_a_maker_do_not_scale_over_each_other(api: Served) -> None:
    api.serve(replicas=2)
    service = api.store.services.one("default", "web")
    assert service
    assert api.store.services.rescale(service.service_id, 2, 3, 5)
    assert not api.store.services.rescale(service.service_id, 2, 4, 5), "it has three by now"
    assert api.row()["replicas"] == 3
    assert not api.store.services.rescale("nosuch", 0, 4, 5)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"idle_seconds": 1}, "idle_seconds"),
        ({"autoscale": {"min": 0, "max": 2}}, "autoscale.min"),
        ({"autoscale": {"min": 3, "max": 2}}, "autoscale.max"),
        ({"autoscale": {"min": 2, "max": 3}, "replicas": 1}, "replicas"),
        ({"autoscale": {"max": 2, "target": 0}}, "autoscale.target"),
        ({"autoscale": {"max": 101}}, "autoscale.max"),
    ],
)
def test_scaling_that_cannot_be_is_refused_by_its_field(both: Served, more: Any, field: str) -> None:
    answer = both.serve(**more)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


def test_a_number_that_the_load_would_not_keep_is_refused(both: Served) -> None:
    assert both.serve(autoscale={"min": 1, "max": 3}).json()["replicas"] == 1
    answer = both.ask("POST", "/api/services/web/scale", {"replicas": 4}, both.maker)
    assert (answer.status_code, answer.json()["field"]) == (422, "replicas"), answer.text
    assert both.ask("POST", "/api/services/web/scale", {"replicas": 3}, both.maker).json()["replicas"] == 3


def test_a_replica_whose_runner_is_missed_is_replaced_before_its_lease_ends(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_workers, "MISSED_SECONDS", 0.0)
    api.serve()
    api.leader.run_once()
    [lost] = api.jobs()
    api.run(lost)
    api.leader.run_once()
    assert api.jobs() == [lost]
    api.store.client.zadd(keys.WORKERS, {"runner-1": 1})
    api.leader.run_once()
    [_, new] = api.jobs()
    api.run(new, worker="runner-2")
    api.leader.run_once()
    assert [each["state"] for each in api.row()["running"]] == ["stopping", "ready"]


# -- groups ---------------------------------------------------------------------------------------------------------


def grouped(api: Served, replicas: int = 3) -> list[str]:
    """Serve Dask workers, and return their running jobs."""
    assert api.serve(name="dask", engine="dask", parameters={}, replicas=replicas).status_code == 201
    api.leader.run_once()
    jobs = api.jobs("dask")
    for number, job in enumerate(jobs):
        api.run(job, "starting", worker="runner-1", port=9000 + number, key=f"key-{number}" * 4)
    return jobs


def leads(api: Served, job: str) -> int | None:
    return api.store.services.lead(job, f"runner-1/{job}")


def test_whichever_replica_asks_first_leads_until_it_ends(both: Served) -> None:
    jobs = grouped(both)
    assert [leads(both, jobs[1]), leads(both, jobs[0]), leads(both, jobs[2]), leads(both, jobs[1])] == [2, 2, 2, 2]
    both.die(jobs[1])
    assert [leads(both, jobs[2]), leads(both, jobs[0])] == [3, 3]
    service = both.store.services.one("default", "dask")
    assert service and service.leads == 3
    assert both.store.services.retire(service.service_id, 3)
    assert [leads(both, jobs[0]), leads(both, jobs[0])] == [1, 1], "what takes no requests leads nobody"


def test_a_restart_has_a_leader_of_its_own(api: Served) -> None:
    first, *_ = grouped(api, 2)
    assert leads(api, first) == 1
    assert api.ask("POST", "/api/services/dask/restart", token=api.maker).status_code == 200
    api.leader.run_once()
    new = api.jobs("dask")[-1]
    api.run(new)
    assert (leads(api, new), leads(api, first)) == (3, 1)


def test_who_has_no_lease_of_a_replica_leads_nobody_and_hears_of_none(api: Served) -> None:
    first, second = grouped(api, 2)
    for job, token in ((first, "runner-2/x"), (first, f"runner-1/{second}"), ("v-0-1", "x"), ("no-replica", "x")):
        assert api.store.services.lead(job, token) is None
    assert leads(api, second) == 2


def test_access_to_a_group_is_that_to_its_leader_for_who_may_run_programs_and_is_noted(both: Served) -> None:
    jobs = grouped(both, 2)

    def access(token: str = both.maker, name: str = "dask") -> Any:
        return both.ask("POST", f"/api/services/{name}/access", token=token)

    assert (access().status_code, "no replica of dask is leading yet" in access().text) == (503, True)
    assert leads(both, jobs[1]) == 2
    assert access().status_code == 503, "it is not ready"
    both.run(jobs[1], port=9001, key="the-key-of-the-one-that-leads")
    answer = access()
    assert answer.status_code == 200 and answer.headers["Cache-Control"] == "no-store"
    found = answer.json()
    assert (found["job_id"], found["port"]) == (jobs[1], 9001) and "the-key-of" not in answer.text
    credentials = registry.credentials("dask")
    assert credentials and found["certificate"] == credentials("the-key-of-the-one-that-leads")[0]
    assert access(both.token("read", "submit", "infer")).status_code == 403
    both.ask("PUT", "/api/tenants/a", {})
    assert access(both.token("run", "read", tenant="a")).status_code == 404
    assert "show service access" in both.ask("GET", "/api/audit").text
    both.serve()
    assert (access(name="web").status_code, access(name="nosuch").status_code) == (409, 404)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"parameters": {"threads": 0}}, "parameters.threads"),
        ({"parameters": {"memory_mib": -1}}, "parameters.memory_mib"),
        ({"idle_seconds": 60}, "idle_seconds"),
        ({"parameters": {"scheduler": "tcp://x"}}, "parameters.scheduler"),
    ],
)
def test_workers_of_dask_are_refused_by_field(api: Served, given: dict[str, Any], field: str) -> None:
    answer = api.serve(**{"name": "dask", "engine": "dask", "parameters": {}, **given})
    assert (answer.status_code, answer.json().get("field")) == (422, field), answer.text
