"""Tests the deployed stack in this order: exact results, hardening, metrics, scaling, failures, updates, backups."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests import dashboard_queries, fetch
from tests.stack.load import Load
from tests.stack.stack import ROOT, Stack, eventually

#: Timeout in seconds for containers, which take minutes to start on a busy machine.
pytestmark = pytest.mark.timeout(900)
#: Parameters of a job that takes three workers on two cores some seconds.
LONG = {"start_number": 1, "number_count": 4_000_000_000}
#: Published values: the first numbers below 10^9 with the greatest delay and with the greatest peak.
DELAY_RECORD, PEAK_RECORD = (670617279, 986), (319804831, 1414236446719942480)


@pytest.fixture(scope="module")
def undisturbed(stack: Stack) -> dict[str, object]:
    return stack.result(stack.submit("collatz", **LONG))


def test_an_exact_result_comes_through_port_80(stack: Stack) -> None:
    result = stack.result(stack.submit("collatz", start_number=1, number_count=10**9))
    assert int(result["count"]) == 10**9
    assert (int(result["delay"]["max"]["n"]), int(result["delay"]["max"]["value"])) == DELAY_RECORD
    assert (int(result["peak"]["max"]["n"]), int(result["peak"]["max"]["value"])) == PEAK_RECORD


def test_a_simulation_gives_the_digest_of_the_reference(stack: Stack) -> None:
    golden = json.loads((ROOT / "jobs/kinds/thread/golden.json").read_text())
    result = stack.result(stack.submit("thread", seed=1))
    assert result["digest"] in json.dumps(golden)


def test_both_ports_serve_the_api_and_only_port_80_the_pages(stack: Stack) -> None:
    assert fetch.get(f"{stack.api_url}/api/status").json()["version"] == stack.get("/api/status")["version"]
    assert "text/html" in fetch.get(stack.url).headers["content-type"]
    answer = fetch.get(f"{stack.api_url}/")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert fetch.get(f"{stack.url}/metrics").status_code == 404


def test_the_example_of_settings_is_what_runs_without_any(stack: Stack) -> None:
    example = stack.folder / "example.env"
    lines = (stack.folder / ".env.example").read_text().splitlines()
    example.write_text("\n".join(line.removeprefix("#") for line in lines if re.match(r"#[A-Z][A-Z0-9_]*=", line)))

    def understood(file: str) -> object:
        files = ("-f", "docker-compose.yml", "-f", "deploy/tls.yml")
        return json.loads(stack.compose("--env-file", file, *files, "--profile", "*", "config", "--format", "json"))

    assert understood(str(example)) == understood("/dev/null")


def test_every_container_is_hardened(stack: Stack) -> None:
    containers = stack.inspect(*stack.compose("ps", "--quiet").split())
    assert len(containers) >= 2 + 3 + 2 + 5
    for container in containers:
        name, config, host = container["Name"], container["Config"], container["HostConfig"]
        user = config["User"].partition(":")[0]
        assert user.isdigit() and int(user) > 0, f"{name} runs as {config['User']!r}"
        assert host["ReadonlyRootfs"], f"{name} can write to its root"
        assert host["CapDrop"] == ["ALL"] and not host["CapAdd"] and not host["Privileged"], name
        assert any(option.startswith("no-new-privileges") for option in host["SecurityOpt"]), name
        assert host["Memory"] > 0 and host["PidsLimit"] > 0, f"{name} has no limits"
        assert not [mount for mount in container["Mounts"] if "docker.sock" in mount["Source"]], name
        for ports in container["NetworkSettings"]["Ports"].values():
            assert {port["HostIp"] for port in ports or []} <= {"127.0.0.1"}, f"{name} is published beyond this machine"


def test_no_secret_stands_in_a_command_line_or_an_environment(stack: Stack) -> None:
    secrets = [path.read_text().strip() for path in (stack.folder / "secrets").iterdir() if path.suffix != ".acl"]
    password = (stack.folder / "secrets/redis_password").read_text().strip()
    shown = json.dumps(stack.inspect(*stack.compose("ps", "--quiet").split()))
    assert len(password) >= 32
    assert not [secret for secret in secrets if secret and secret in shown]
    assert password not in stack.run("ps", "-eo", "args").stdout


def test_the_coordinators_image_holds_no_compiler_of_kernels(stack: Stack) -> None:
    [coordinator, *_] = stack.ids("coordinator")
    for module in ("numba", "numpy", "cpu_worker", "tests"):
        done = stack.run("docker", "exec", coordinator, "python", "-c", f"import {module}", check=False)
        assert "ModuleNotFoundError" in done.stderr, module
    [worker, *_] = stack.ids("cpu-worker")
    for module in ("fastapi", "coordinator", "threads_cluster"):
        done = stack.run("docker", "exec", worker, "python", "-c", f"import {module}", check=False)
        assert "ModuleNotFoundError" in done.stderr, module


def test_what_keeps_data_and_computes_is_on_a_network_without_a_way_out(stack: Stack) -> None:
    [backend] = json.loads(stack.run("docker", "network", "inspect", f"{stack.project}_backend").stdout)
    assert backend["Internal"] is True
    for service in ("redis", "cpu-worker", "redis-exporter"):
        for container in stack.inspect(*stack.ids(service)):
            assert list(container["NetworkSettings"]["Networks"]) == [f"{stack.project}_backend"], service


def test_prometheus_scrapes_every_service_and_replica(stack: Stack) -> None:
    wanted = sorted(
        [("coordinator", "up")] * 2
        + [("cpu-worker", "up")] * 3
        + [("web", "up")] * 2
        + [(job, "up") for job in ("nginx-exporter", "prometheus", "redis-exporter")]
    )
    eventually(lambda: stack.targets() == wanted, 180, f"the targets are {wanted}")


def empty_panels(stack: Stack, needs: str, seconds: float) -> list[str]:
    """Return the panels with these needs whose query has no data. Rates need several scrapes."""
    asked = [one for one in dashboard_queries.every_query() if one.needs == needs]
    assert len(asked) > 10
    deadline = time.monotonic() + seconds
    while True:
        left = [f"{one.dashboard} / {one.panel}: {one.expr}" for one in asked if not stack.query(one.expr)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(5)


def test_every_panel_shows_data_after_a_load(stack: Stack) -> None:
    for kind, parameters in (("collatz", {"start_number": 1, "number_count": 10**8}), ("thread", {"seed": 2})):
        stack.result(stack.submit(kind, **parameters))
    left = empty_panels(stack, "", 180)
    assert not left, "panels without data:\n" + "\n".join(left)


PRETENDED_GPU = """
import json, select, sys, time
from jobs import settings
from jobs.hosts import measurements
from jobs.store import Store
from jobs.store.server import connection
store = Store(connection.connect(settings.load().redis_url))
every = {figure.field: figure.type(1) for figure in measurements.GPU}
gpu = {**every, "uuid": "GPU-pretended", "name": "Pretended", "index": 0, "utilization_ratio": 0.9,
       "sm_active_ratio": 0.8, "memory_used_bytes": 1 << 30, "memory_total_bytes": 80 << 30,
       "temperature_celsius": 60, "power_watts": 300,
       "clock_sm_hertz": 1.7e9, "throttle_reasons": ["sw_power_cap"]}
while not select.select([sys.stdin], [], [], 1)[0]:  # until whoever started it closes its input
    gpu["energy_joules_total"] = 300 * time.time()
    facts = {"device": "gpu", "state": "idle", "lanes": 0, "busy_lanes": 0, "gpus": json.dumps([gpu])}
    store.fleet.heartbeat("pretended", "1", facts)
store.fleet.heartbeat("pretended", "1", facts, leaving=True)
"""


def test_the_gpu_panels_show_what_a_worker_says_of_its_gpu(stack: Stack) -> None:
    command = ["docker", "exec", "--interactive", stack.ids("cpu-worker")[0], "python", "-c", PRETENDED_GPU]
    with subprocess.Popen(command, stdin=subprocess.PIPE):  # whose input is closed before the wait for its exit
        left = empty_panels(stack, "gpu", 120)
    assert not left, "panels without data:\n" + "\n".join(left)


def test_no_alert_fires_on_a_healthy_stack(stack: Stack) -> None:
    firing = stack.query('ALERTS{alertstate="firing"}')
    assert not firing, firing


def test_counts_survive_a_plain_up(stack: Stack) -> None:
    stack.deploy("scale", "4")
    assert len(stack.ids("cpu-worker")) == 4
    stack.compose("up", "-d")
    assert len(stack.ids("cpu-worker")) == 4
    eventually(lambda: len(stack.live_workers()) == 4, 180, "four workers live")
    eventually(lambda: stack.get("/api/status")["cluster_size"] == 4, 60, "they are counted")
    assert "# a line of the user's own" in (stack.folder / ".env").read_text()
    stack.compose("up", "-d", "--scale", "cpu-worker=5")
    assert len(stack.ids("cpu-worker")) == 5
    stack.deploy("scale", "3")
    assert len(stack.ids("cpu-worker")) == 3


def test_a_worker_killed_in_mid_job_changes_nothing(stack: Stack, undisturbed: dict[str, object]) -> None:
    job = stack.submit("collatz", **LONG)
    stack.await_progress(job)
    [victim, *_] = stack.ids("cpu-worker")
    stack.kill_hard(victim)
    assert stack.result(job) == undisturbed
    eventually(lambda: len(stack.live_workers()) == 3, 180, "the killed worker is back")


def test_a_restart_of_redis_in_mid_job_changes_nothing(stack: Stack, undisturbed: dict[str, object]) -> None:
    job = stack.submit("collatz", **LONG)
    stack.await_progress(job)
    stack.compose("restart", "redis")
    assert stack.result(job) == undisturbed


def test_no_request_fails_while_replicas_come_go_and_die(stack: Stack) -> None:
    with Load(stack.url) as load:
        time.sleep(3)
        stack.compose("up", "-d", "--no-recreate", "--wait", "--scale", "web=5", "web")
        time.sleep(4)
        [victim, *_] = stack.ids("coordinator")
        stack.kill_hard(victim)
        stack.compose("up", "-d", "--no-recreate", "--scale", "web=2", "web")
        eventually(lambda: stack.targets().count(("coordinator", "up")) == 2, 180, "the killed coordinator is back")
        eventually(lambda: load.requests >= 2200, 240, "2,200 requests")
    print(f"{load.requests} requests, {len(load.failures)} failed")
    assert load.requests >= 2000
    assert not load.failures, f"{len(load.failures)} of {load.requests} failed, such as {load.failures[:5]}"


def test_a_rolling_update_fails_no_request(stack: Stack) -> None:
    before = stack.ids("coordinator")
    stack.set("LOG_LEVEL", "debug")
    with Load(stack.url) as load:
        time.sleep(2)
        stack.deploy("docker", "3", "0")
        time.sleep(2)
    assert not set(before) & set(stack.ids("coordinator"))
    assert len(stack.ids("coordinator")) == 2
    print(f"{load.requests} requests, {len(load.failures)} failed")
    assert not load.failures, f"{len(load.failures)} of {load.requests} failed, such as {load.failures[:5]}"
    eventually(lambda: len(stack.live_workers()) == 3, 180, "three workers live")


def leases_without_a_commit(stack: Stack) -> dict[str, str]:
    """Return the number of leases without a commit in new metrics, which Prometheus reads every five seconds."""
    now = time.time()
    eventually(lambda: all(at > now for at in asked_at(stack)), 60, "Prometheus has asked the coordinators")
    rows = stack.query('max by (outcome) (cluster_leases_total{outcome!="committed"})')
    return {row["metric"]["outcome"]: row["value"][1] for row in rows}


def asked_at(stack: Stack) -> list[float]:
    """Return the time of Prometheus' last scrape of each coordinator."""
    rows = stack.query('timestamp(up{job="coordinator"})')
    return [float(row["value"][1]) for row in rows] or [0.0]


def autoscaled_to(stack: Stack, workers: int, least: int) -> bool:
    stack.deploy("autoscale", "--min", str(least), "--max", "3", "--once")
    return len(stack.ids("cpu-worker")) == workers


def test_autoscale_drains_workers_that_are_not_needed(stack: Stack) -> None:
    """The cluster is idle. The bats tests check that a busy worker finishes its leases before its container stops."""
    stack.set("AUTOSCALE_CALM_SECONDS", "1")
    stack.set("AUTOSCALE_SECONDS", "2")
    before = leases_without_a_commit(stack)
    eventually(lambda: autoscaled_to(stack, 1, least=1), 240, "two of three workers have drained")
    assert leases_without_a_commit(stack) == before


#: Tries forbidden requests about the autoscaler's own worker OURS and about Redis (THEIRS), and prints the statuses.
HOSTILE = """
import http.client, json
def ask(method, path, body=None, **headers):
    proxy = http.client.HTTPConnection("engine-proxy", 2375, timeout=60)
    proxy.request(method, path, body, {"Content-Type": "application/json"} | headers)
    return proxy.getresponse().status
disk = json.dumps({"Image": "valkey/valkey:8.1.8-trixie", "HostConfig": {"Binds": ["/:/host"], "Privileged": True}})
print([
    ask("POST", "/v1.41/containers/create", disk), ask("POST", "/v1.43/../containers/create", disk),
    ask("POST", "/v1.41/containers%2fcreate", disk), ask("POST", "/v1.41/containers/OURS/exec", '{"Cmd": ["true"]}'),
    ask("POST", "/v1.41/containers/THEIRS/stop"), ask("POST", "/v1.41/containers/THEIRS/start"),
    ask("POST", "/v1.41/containers/OURS/start", Upgrade="tcp"), ask("POST", "/v1.41/containers/OURS/kill"),
    ask("DELETE", "/v1.41/containers/OURS"), ask("GET", "/v1.41/images/json"),
    ask("GET", "/v1.41/containers/THEIRS/json"),
])
"""


def pool(stack: Stack) -> dict[str, str]:
    """Return the state of each container of the autoscaler's pool, keyed by ID."""
    ids = stack.run("docker", "compose", "ps", "--all", "--quiet", "cpu-worker-pool").stdout.split()
    return {one["Id"]: one["State"]["Status"] for one in stack.inspect(*ids)}


def running(stack: Stack) -> int:
    return list(pool(stack).values()).count("running")


def autoscaler_says(stack: Stack, words: str) -> None:
    eventually(lambda: words in stack.compose("logs", "autoscaler"), 180, f"the autoscaler says: {words}")


def test_the_autoscaler_follows_the_work_and_can_do_nothing_else(stack: Stack) -> None:
    before = leases_without_a_commit(stack)
    address = Path(os.environ.get("DOCKER_HOST", "").removeprefix("unix://") or "/var/run/docker.sock")
    stack.set("DOCKER_SOCKET", str(address))
    stack.set("DOCKER_GID", str(address.stat().st_gid))
    stack.set("COMPOSE_PROFILES", "autoscale")
    stack.compose("create", "cpu-worker-pool")
    stack.compose("up", "--detach", "autoscaler")
    assert len(pool(stack)) == 3 and running(stack) == 0
    # About 15 s of work for two cores, in which a second worker starts. The third worker starts only if the job takes
    # longer.
    job = stack.submit("collatz", start_number=1, number_count=18 * 10**9)
    eventually(lambda: running(stack) >= 1, 180, "the autoscaler has started a worker")

    [redis], [ours, *_] = stack.inspect(*stack.ids("redis")), pool(stack)
    program = HOSTILE.replace("OURS", ours).replace("THEIRS", redis["Id"])
    tried = stack.run("docker", "exec", *stack.ids("autoscaler"), "python", "-c", program).stdout
    assert json.loads(tried) == [403] * 11
    eventually(lambda: stack.compose("logs", "engine-proxy").count(" 403 ") == 11, 60, "each refusal is logged")
    assert stack.inspect(redis["Id"])[0]["State"]["StartedAt"] == redis["State"]["StartedAt"]

    stack.compose("stop", "engine-proxy")
    autoscaler_says(stack, "No worker was started or stopped: the Docker engine's proxy does not answer")
    stack.compose("start", "engine-proxy")
    coordinators = stack.ids("coordinator")
    autoscaler_says(stack, "The autoscaler works again.")
    stack.run("docker", "pause", *coordinators)
    try:
        autoscaler_says(stack, "No worker was started or stopped: the API does not answer")
    finally:
        stack.run("docker", "unpause", *coordinators)

    longest = stack.result(job)["delay"]["max"]
    assert (int(longest["n"]), int(longest["value"])) == (17828259369, 1213)
    eventually(lambda: running(stack) == 0, 180, "the workers of the pool have drained and stopped")
    assert leases_without_a_commit(stack) == before
    stack.compose("rm", "--stop", "--force", "autoscaler", "engine-proxy", "cpu-worker-pool")
    stack.set("COMPOSE_PROFILES", "")


def test_autoscale_starts_workers_again(stack: Stack) -> None:
    eventually(lambda: autoscaled_to(stack, 3, least=3), 240, "three workers")
    stack.deploy("scale", "3")  # until the containers are ready


def test_status_and_report_tell_and_keep_secrets(stack: Stack) -> None:
    status = json.loads(stack.deploy("status", "--json").stdout)
    assert "coordinator" in json.dumps(status)
    report = stack.deploy("report").stdout
    for name in ("redis_password", "grafana_admin_password"):
        assert (stack.folder / "secrets" / name).read_text().strip() not in report
    assert "coordinator" in report and "p95" in report.lower()


def test_a_backup_brings_everything_back_after_a_cleanup(stack: Stack) -> None:
    done = stack.submit("collatz", start_number=1, number_count=10**7)
    result = stack.result(done)
    [paused] = [stack.submit("collatz", **LONG)]
    fetch.post(f"{stack.url}/api/jobs/{paused}/pause").raise_for_status()
    jobs = {job["job_id"]: job["state"] for job in stack.get("/api/jobs")["jobs"]}
    file = stack.folder / "backup.tar.gz"
    stack.deploy("backup", str(file))
    stack.deploy("cleanup", "--yes")
    assert not stack.compose("ps", "--quiet").split()
    assert stack.project not in stack.run("docker", "volume", "ls").stdout
    stack.deploy("restore", str(file), "--yes")
    assert {job["job_id"]: job["state"] for job in stack.get("/api/jobs")["jobs"]} == jobs
    assert stack.result(done) == result
    fetch.post(f"{stack.url}/api/jobs/{paused}/resume").raise_for_status()
    assert stack.result(paused)["count"] == LONG["number_count"]
