"""Checks deploy/ha.yml and k8s/components/sentinel without an engine or a cluster."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from jobs.network import redis_address
from jobs.settings import Settings
from tests.unit import test_kubernetes as kubernetes
from tests.unit.manifests import (
    NAME,
    ROOT,
    VERSIONS,
    Object,
    combined,
    containers,
    labels,
    matches,
    of_kind,
    parsed,
    pod,
    texts,
    workloads,
)

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
HA_TEXT = (ROOT / "deploy/ha.yml").read_text()
HA = yaml.safe_load(HA_TEXT)
SERVICES: dict[str, dict[str, Any]] = HA["services"]
SCRIPTS = ROOT / "k8s/components/sentinel"
SENTINELS = [name for name in SERVICES if name.startswith("sentinel-")]
SERVERS = [name for name in SERVICES if name.startswith("redis")]


# -- Compose ----------------------------------------------------------------------------------------------------------


def test_there_are_three_servers_and_a_majority_of_sentinels() -> None:
    assert (len(SERVERS), len(SENTINELS)) == (3, 3)
    assert "sentinel monitor threads %s 6379 2" in (SCRIPTS / "sentinel.sh").read_text()


@pytest.mark.parametrize("name", SENTINELS)
def test_a_sentinel_is_as_hardened_as_redis_and_on_inner_networks_alone(name: str) -> None:
    sentinel, server = SERVICES[name], COMPOSE["services"]["redis"]
    for key in ("image", "user", "read_only", "cap_drop", "security_opt", "init", "restart", "logging"):
        assert sentinel[key] == server[key], key
    assert {"memory", "pids"} <= sentinel["deploy"]["resources"]["limits"].keys() and "ports" not in sentinel
    assert sentinel["networks"].keys() == {"backend", "redis"}
    assert COMPOSE["networks"]["backend"]["internal"] and HA["networks"]["redis"]["internal"]
    assert "valkey-cli -p 26379" in sentinel["healthcheck"]["test"][-1]


@pytest.mark.parametrize("name", [*SERVERS, *SENTINELS])
def test_each_is_found_under_its_own_name_and_keeps_what_it_learned(name: str) -> None:
    """A sentinel that returns under another name would count as an additional one, and the majority would be lost."""
    service = SERVICES[name]
    script = "sentinel.sh" if name in SENTINELS else "server.sh"
    assert service["entrypoint"] == ["sh", f"/etc/threads/{script}", name, "redis"]
    data = f"{name}-data"
    volumes = {**HA["volumes"], **COMPOSE["volumes"]}
    assert name == "redis" or (f"{data}:/data" in service["volumes"] and data in volumes)
    assert "./k8s/components/sentinel:/etc/threads:ro" in service["volumes"]


def test_everybody_goes_through_the_sentinels_and_waits_for_a_replica() -> None:
    for role, services in (
        ("coordinator", ["coordinator"]),
        ("worker", ["cpu-worker", "cpu-worker-pool", "gpu-worker"]),
    ):
        file = f"${{SECRETS_FOLDER:-./secrets}}/redis_{role}_sentinel_url"
        assert HA["secrets"][f"redis_{role}_url"] == {"file": file}
        for name in services:
            assert SERVICES[name]["environment"] == {"REDIS_REPLICAS_TO_WAIT": "1"}
            first = SERVICES[name]["depends_on"]
            # While no replica is running, the master accepts no writes, and no worker is healthy.
            assert first.keys() == {*SENTINELS, *SERVERS} - {"redis"}
            assert {first[server]["condition"] for server in SERVERS if server != "redis"} == {"service_started"}
    url = "redis+sentinel://worker:x@sentinel:26379/threads/0"
    assert url.partition("@")[2] in (ROOT / "deploy/secrets.sh").read_text()
    place = redis_address.sentinels(url)
    assert (place.hosts, place.service, place.database) == ((("sentinel", 26379),), "threads", 0)


def test_what_it_mounts_is_made_and_has_no_default() -> None:
    given = {**COMPOSE["secrets"], **HA["secrets"]}
    assert {name for service in SERVICES.values() for name in service.get("secrets", ())} <= given.keys()


def test_servers_and_sentinels_ask_no_dns_for_each_other_and_who_uses_them_does_not_wait_for_it() -> None:
    """Docker forgets the name of a stopped container, and older engines then delay the client for ten seconds."""
    (prefix,) = {text.rpartition(".")[0] for text in re.findall(r"\$\{HA_NETWORK:-[\d.]+\}\.\d+", HA_TEXT)}
    assert HA["networks"]["redis"]["ipam"]["config"] == [{"subnet": f"{prefix}.0/28"}]
    assert HA["networks"]["redis"]["internal"] is True
    addresses = {name: SERVICES[name]["networks"]["redis"]["ipv4_address"] for name in (*SERVERS, *SENTINELS)}
    assert len(set(addresses.values())) == 6
    for name in addresses:
        known = SERVICES[name].get("extra_hosts") or HA["x-server"]["extra_hosts"]
        assert dict(line.split(":", 1) for line in known) == addresses
    for name in SENTINELS:
        assert SERVICES[name]["networks"]["backend"] == {"aliases": ["sentinel"]}
    for name in ("coordinator", "cpu-worker", "cpu-worker-pool", "gpu-worker"):
        assert SERVICES[name]["dns_opt"] == ["timeout:1", "attempts:2"]


# -- the scripts ------------------------------------------------------------------------------------------------------


@pytest.fixture
def scripts(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which `valkey-server` prints its arguments, with the passwords a and b."""
    for name, text in (("redis_replica_password", "a"), ("redis_sentinel_password", "b")):
        (tmp_path / name).write_text(f"{text}\n")
    server = tmp_path / "valkey-server"
    server.write_text('#!/bin/sh\necho "$@"\n')
    server.chmod(0o755)
    return {"PATH": f"{tmp_path}:/usr/bin:/bin", "DATA": str(tmp_path), "SECRETS": str(tmp_path)}


def run(script: str, environment: dict[str, str], *arguments: str) -> tuple[str, str]:
    """Return the started command, and the file with its settings."""
    done = subprocess.run(["sh", SCRIPTS / script, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    conf = Path(environment["DATA"]) / ("redis.conf" if script == "server.sh" else "sentinel.conf")
    assert conf.stat().st_mode & 0o077 == 0, "it holds a password"
    return done.stdout, conf.read_text()


def test_a_server_begins_as_it_is_told_and_stays_what_sentinels_made_of_it(scripts: dict[str, str]) -> None:
    started, conf = run("server.sh", scripts, "redis", "redis", "--dir", "/data", "--save", "")
    assert started == f"{scripts['DATA']}/redis.conf --dir /data --save \n" and "replicaof" not in conf
    for line in (
        "masterauth a",
        "masteruser replica",
        "replica-announce-ip redis",
        "min-replicas-to-write 1",
        "min-replicas-max-lag 3",
    ):
        assert line in conf.splitlines()
    path = Path(scripts["DATA"]) / "redis.conf"
    path.write_text(f"# as CONFIG REWRITE leaves it\nport 6379\nmasterauth old\n{conf}replicaof other 6379\n")
    _, conf = run("server.sh", scripts, "redis", "redis")
    assert conf.splitlines()[-1] == "replicaof other 6379" and "old" not in conf
    path.unlink()
    assert run("server.sh", scripts, "redis-replica-1", "redis")[1].splitlines()[-1] == "replicaof redis 6379"


def test_a_sentinel_keeps_what_it_learned_and_takes_new_passwords(scripts: dict[str, str]) -> None:
    started, conf = run("sentinel.sh", scripts, "sentinel-1", "redis")
    assert started == f"{scripts['DATA']}/sentinel.conf --sentinel\n"
    assert "sentinel monitor threads redis 6379 2" in conf and "sentinel auth-pass threads b" in conf
    assert "sentinel announce-ip sentinel-1" in conf and "sentinel resolve-hostnames yes" in conf
    learned = conf.replace("threads redis 6379", "threads redis-replica-1 6379") + "sentinel myid 7\n"
    (Path(scripts["DATA"]) / "sentinel.conf").write_text(learned)
    (Path(scripts["SECRETS"]) / "redis_sentinel_password").write_text("c\n")
    _, again = run("sentinel.sh", scripts, "sentinel-1", "redis")
    assert "sentinel monitor threads redis-replica-1 6379 2" in again and "sentinel myid 7" in again
    assert again.count("auth-pass") == 1 and "sentinel auth-pass threads c" in again
    assert len(again.splitlines()) == len(learned.splitlines())


# -- Kubernetes -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """Return the overlay dev with the component."""
    return combined(tmp_path_factory.mktemp("k"), "overlays/dev", "sentinel", "gpu")


def test_its_objects_follow_the_schemas_and_prod_can_have_it(objects: list[Object], tmp_path: Path) -> None:
    plain = {str(parsed(text)) for text in texts(ROOT / "k8s/overlays/dev")}
    added = [item for item in objects if str(item) not in plain]
    assert len(added) > 8
    for item in added:
        for version in VERSIONS:
            kubernetes_validate.validate(item, version, strict=True)
    prod = combined(tmp_path, "overlays/prod", "sentinel")
    assert workloads(prod)["redis"]["spec"]["replicas"] == workloads(prod)["sentinel"]["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    "check",
    [
        kubernetes.test_all_lies_in_one_namespace_and_nothing_has_a_right,
        kubernetes.test_pods_keep_to_the_restricted_profile,
        kubernetes.test_no_pod_has_a_token_of_the_cluster,
        kubernetes.test_every_container_has_requests_limits_and_a_pinned_image,
        kubernetes.test_services_select_pods_and_ports_that_are_there,
        kubernetes.test_everything_is_denied_that_no_policy_names,
    ],
)
def test_it_keeps_the_promises_of_the_others(objects: list[Object], check: Any) -> None:
    check(objects)


def test_pods_are_those_of_compose(objects: list[Object]) -> None:
    (sentinel,) = pod(workloads(objects)["sentinel"])["containers"]
    (server,) = pod(workloads(objects)["redis"])["containers"]
    assert sentinel["image"] == server["image"] == SERVICES["sentinel-1"]["image"]
    assert sentinel["command"] == ["sh", "/etc/threads/sentinel.sh", "$(POD_NAME).sentinel", "redis-0.redis"]
    assert server["command"] == ["sh", "/etc/threads/server.sh", "$(POD_NAME).redis", "redis-0.redis"]
    assert server["args"] == [
        re.sub(r"^\$\{[A-Z_]+:-([^}]*)\}$", r"\1", word) for word in COMPOSE["services"]["redis"]["command"]
    ]
    for name, count in (("sentinel", 3), ("redis", 3)):
        workload = workloads(objects)[name]
        assert workload["spec"]["replicas"] == count and workload["spec"]["podManagementPolicy"] == "Parallel"
        assert of_kind(objects, "PodDisruptionBudget")[name]["spec"]["maxUnavailable"] == 1
        assert "podAntiAffinity" in pod(workload)["affinity"]
        assert of_kind(objects, "Service")[name]["spec"]["publishNotReadyAddresses"] is True


def test_settings_and_scripts_come_with_it(objects: list[Object]) -> None:
    configs = {name.rpartition("-")[0]: item["data"] for name, item in of_kind(objects, "ConfigMap").items()}
    assert configs["settings"]["REDIS_REPLICAS_TO_WAIT"] == "1" and "redis_replicas_to_wait" in Settings.model_fields
    assert configs["redis-scripts"] == {name: (SCRIPTS / name).read_text() for name in ("server.sh", "sentinel.sh")}
    mounted = {name for name, container in containers(objects) if "/etc/threads" in str(container.get("volumeMounts"))}
    assert mounted == {"redis", "sentinel"}
    render = (ROOT / "deploy/kubernetes/render.sh").read_text()
    for name in ("sentinel.acl", "redis_sentinel_password", "redis_replica_password", "sentinel_url"):
        assert name in render, "who makes the Secrets"


def test_every_path_is_named_at_both_ends(objects: list[Object]) -> None:
    parts = {labels(workload)[NAME]: workload for workload in workloads(objects).values()}
    policies = of_kind(objects, "NetworkPolicy")
    coming, going = set(), set()
    for policy in policies.values():
        for name in parts:
            if matches(policy["spec"]["podSelector"], {NAME: name}) and policy["spec"]["podSelector"]:
                coming |= set(kubernetes.paths(policy, parts, name, "ingress", "from"))
                going |= {path for path in kubernetes.paths(policy, parts, name, "egress", "to") if path[1] in parts}
    ours = {path for path in coming if {"redis", "sentinel"} & set(path[:2])}
    assert ours == {path for path in going if {"redis", "sentinel"} & set(path[:2])}
    asking = {"coordinator", "cpu-worker", "gpu-worker"}
    assert {path for path in ours if path[1] == "sentinel"} == {
        (name, "sentinel", 26379) for name in asking | {"sentinel"}
    }
    assert {path[0] for path in ours if path[1] == "redis"} == asking | {"redis", "sentinel", "redis-exporter"}
