"""A cluster whose parts use Redis under their own users, and what those users are denied.

Every test on `Live` runs under these users, and fails at its end when one was denied something.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from jobs.store import Store, acl
from jobs.store.server import connection
from jobs.store.work import wakeups
from tests import fetch
from tests.chaos import work
from tests.contract.lease_model import new_job
from tests.integration import held
from tests.integration.live import Live, running, until
from tests.ports import free_port
from tests.redis_servers import ALL, VERSIONS, require_server
from tests.unit.receiver import Receiver
from tests.unit.test_redis_acl import PRIVATE


@pytest.fixture(scope="module", params=VERSIONS)
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    server = require_server(request.param)
    folder, more = tmp_path_factory.mktemp("acl"), {"SECRETS_KEY": "1" * 32, "WEBHOOK_ALLOW": "127.0.0.1"}
    with running(folder, redis_server=server, **more) as cluster:
        yield cluster


def client(live: Live, role: str) -> redis.Redis:
    return redis.Redis.from_url(live.redis_url(role))


def test_a_cluster_does_all_it_can_under_its_users(live: Live, tmp_path: Path) -> None:
    jobs = [live.submit(kind, dict(parameters)) for kind, parameters in work.SMALL]
    large = {kind: live.submit(kind, dict(parameters)) for kind, parameters in work.SPLIT[::5]}
    steered = held.submit(live, tmp_path / "go_on", 400)
    until(lambda: live.job(steered)["done"] > 0)
    for verb, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled"), ("retry", "done")):
        if verb == "retry":
            (tmp_path / "go_on").touch()
        live.post(f"/api/jobs/{steered}/{verb}")
        live.wait_for(steered, state)
    for job, (kind, parameters) in zip(jobs, work.SMALL, strict=True):
        assert live.result(job) == work.undisturbed(kind, parameters)
    until(lambda: trace(live, large["thread"]), 120)
    assert live.get("/api/kinds/collatz/marks/verified")
    live.kill("worker-0")
    live.start_worker()
    live.wait_ready(1)
    until(lambda: client(live, "operator").get("ct:rewritten"), 120)
    assert live.get("/api/history?names=units.*") and live.get("/api/stream") and live.get("/api/snapshot")
    assert live.denied() == []


def test_a_worker_may_write_the_webhook_of_a_job_that_it_ends(live: Live) -> None:
    with Receiver() as taken:
        job = live.submit("collatz", {"start_number": 27, "number_count": 1}, notify=taken.url())
        until(lambda: taken.got, 120)
        told = json.loads(taken.got[0].body)
        assert (told["type"], told["job"]["id"], told["job"]["result"]) == ("job.done", job, f"/api/jobs/{job}/result")
    job_of = {"type": "collatz", "parameters": {"start_number": 27, "number_count": 1}}
    made = live.post("/api/schedules", {"name": "soon", "every_seconds": 3600, "job": job_of}).json()
    due = int(datetime.fromisoformat(made["created"]).timestamp())
    client(live, "operator").hset(f"ct:schedule:{made['id']}", "next", due)
    client(live, "operator").zadd("ct:schedules", {made["id"]: due * 1000})
    until(lambda: live.get("/api/schedules/soon")["submitted"], 120)
    assert live.result(live.get("/api/schedules/soon")["last_job_id"])["count"] == 1
    assert live.denied() == []


def trace(live: Live, job: str) -> Any:
    """Return the trace of a job's replica, or None while it is being computed."""
    answer = fetch.get(f"{live.url()}/api/jobs/{job}/trace.json?replica=0", timeout=30)
    return answer.json()["traceEvents"] if answer.status_code == 200 else None


#: A function that reads the requested keys.
READS_A_KEY = """#!lua name=reads_a_key
redis.register_function('reads_a_key', function(_, args) return redis.call('GET', args[1]) end)
"""


def reading(key: str) -> dict[str, Callable[[redis.Redis], Any]]:
    return {
        "get": lambda client: client.get(key),
        "hgetall": lambda client: client.hgetall(key),
        "type": lambda client: client.type(key),
        "exists": lambda client: client.exists(key),
        "copy": lambda client: client.copy(key, "ct:job:mine"),
        "rename": lambda client: client.rename(key, "ct:job:mine"),
        "set": lambda client: client.set(key, "mine"),
        "delete": lambda client: client.delete(key),
        "a function": lambda client: client.fcall("reads_a_key", 0, key),
    }


@pytest.mark.parametrize("name", PRIVATE)
def test_a_worker_neither_reads_nor_writes_who_may_do_what(live: Live, name: str) -> None:
    key = f"ct:{name}"
    live.redis().function_load(READS_A_KEY, replace=True)
    with client(live, "worker") as worker:
        for what, attempt in reading(key).items():
            with pytest.raises(redis.exceptions.ResponseError, match=r"(?i)no permission|can't access|can't run"):
                pytest.fail(f"{what}: {attempt(worker)}")
    live.redis().execute_command("ACL", "LOG", "RESET")


def test_a_worker_reads_weights_and_caps_and_writes_none(live: Live) -> None:
    with client(live, "worker") as worker:
        assert worker.hgetall("ct:shares") == {}
        for command in ("HSET ct:shares default 9|0|0", "DEL ct:shares", "RENAME ct:job:x ct:shares"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                pytest.fail(f"{command}: {worker.execute_command(*command.split())}")
    live.redis().execute_command("ACL", "LOG", "RESET")


OF_FUNCTIONS = [(name,) for name in ("FLUSH", "LIST", "DUMP", "STATS", "KILL")]


def test_only_coordinators_and_the_operator_load_functions(live: Live) -> None:
    """A user who can load a function can replace what an administrator calls next."""
    with client(live, "worker") as worker, client(live, "coordinator") as coordinator:
        store = Store(coordinator)
        coordinator.execute_command("FUNCTION", "DELETE", store.functions.library.name)
        with pytest.raises(connection.LibraryMissing, match="start a coordinator of the same version"):
            Store(worker, loads=False).slots.hold("w")
        with pytest.raises(connection.LoadDenied, match=r"grant \+function\|load"):
            Store(worker).slots.hold("w")
        store.libraries.load()
        assert not Store(worker).slots.hold("w")
        name, text = store.functions.library.name, store.functions.library.text
        for command in (("LOAD", "REPLACE", text), ("RESTORE", "x"), ("DELETE", name), *OF_FUNCTIONS):
            with pytest.raises(redis.exceptions.NoPermissionError):
                pytest.fail(f"{command}: {worker.execute_command('FUNCTION', *command)}")
    live.redis().execute_command("ACL", "LOG", "RESET")


OTHERS: dict[str, tuple[str, ...]] = {
    "worker": (
        "SCAN 0",
        "KEYS *",
        "RANDOMKEY",
        "CONFIG GET *",
        "ACL LIST",
        "FLUSHALL",
        "MONITOR",
        "SHUTDOWN",
        "EVAL x 0",
        "FUNCTION LIST",
        "CLIENT TRACKING ON BCAST PREFIX ct:",
    ),
    "coordinator": ("KEYS *", "CONFIG SET maxmemory 1", "ACL LIST", "FLUSHALL", "MONITOR", "SHUTDOWN", "GET other:key"),
    "exporter": ("GET ct:jobs", "SCAN 0", "CONFIG SET maxmemory 1", "ACL LIST", "DEL ct:jobs", "FCALL x 0"),
}


@pytest.mark.parametrize("role", OTHERS)
def test_a_user_is_denied_what_its_role_does_not_need(live: Live, role: str) -> None:
    with client(live, role) as denied:
        for command in OTHERS[role]:
            with pytest.raises(redis.exceptions.NoPermissionError):
                pytest.fail(f"{command}: {denied.execute_command(*command.split())}")
        assert denied.info("memory")
    live.redis().execute_command("ACL", "LOG", "RESET")


@pytest.mark.parametrize("version", ALL)
def test_redis_with_its_users_loads_all_of_its_log(version: str, tmp_path: Path) -> None:
    """Redis 7.0 loads it as the default user, and drops what that user cannot execute."""
    server = require_server(version)
    users = tmp_path / "users.acl"
    users.write_text("\n".join([*acl.lines({role.name: f">{role.name}" for role in acl.ROLES}), ""]))
    port = free_port()
    options = f"--port {port} --bind 127.0.0.1 --appendonly yes --appendfsync always --save".split()
    command = [server, *options, "", "--dir", str(tmp_path), "--aclfile", str(users), "--logfile", "log"]
    url = f"redis://coordinator:coordinator@127.0.0.1:{port}/0"
    with started(command, url) as client:
        wakeups.create_wakeup_job(Store(client))
        Store(client).jobs.submit([new_job(f"j{number}", 10, "any.normal") for number in range(10)])
    with started(command, url) as client:
        assert client.zcard("ct:jobs") == client.llen("rq:queue:any.normal") == 10
        with redis.Redis(port=port) as stranger, pytest.raises(redis.exceptions.AuthenticationError):
            stranger.ping()


@contextmanager
def started(command: list[str], url: str) -> Iterator[redis.Redis]:
    """Start a Redis that is killed at the end of the context."""
    with subprocess.Popen(command) as process, redis.Redis.from_url(url) as client:
        try:
            until(client.ping)
            yield client
        finally:
            process.kill()
