"""Checks docker-compose.yml and the Dockerfiles without an engine; tests/stack checks the running containers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.autoscaler import pool as pool_client
from deploy.autoscaler import proxy
from jobs.network import exposure
from jobs.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILES = sorted([*ROOT.glob("*/Dockerfile"), *ROOT.glob("deploy/*/Dockerfile")])
#: Services without a shell for health checks, which Prometheus monitors instead.
NO_SHELL = {"redis-exporter", "nginx-exporter", "dcgm-exporter"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_hardened_and_limited(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"] and "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"memory", "pids"} <= service["deploy"]["resources"]["limits"].keys()
    assert not {"privileged", "container_name", "network_mode", "links", "gpus"} & service.keys()
    assert name == "engine-proxy" or not [volume for volume in service.get("volumes", []) if "docker.sock" in volume]


def test_one_service_has_the_engines_socket_and_only_the_autoscaler_reaches_it() -> None:
    assert [name for name, service in SERVICES.items() if "DOCKER_SOCKET" in str(service)] == ["engine-proxy"]
    door, autoscaler = SERVICES["engine-proxy"], SERVICES["autoscaler"]
    assert door["volumes"] == ["${DOCKER_SOCKET:-/var/run/docker.sock}:/var/run/docker.sock:ro"]
    assert door["networks"] == ["engine"] and COMPOSE["networks"]["engine"] == {"internal": True}
    assert [name for name, service in SERVICES.items() if "engine" in service["networks"]] == [
        "autoscaler",
        "engine-proxy",
    ]
    assert not {"ports", "expose", "secrets", "environment"} & door.keys()
    assert autoscaler["secrets"] == ["cluster_token"] and not {"ports", "expose", "volumes"} & autoscaler.keys()
    assert door["profiles"] == autoscaler["profiles"] == SERVICES["cpu-worker-pool"]["profiles"] == ["autoscale"]


def test_workers_by_need_are_workers_like_the_others() -> None:
    pool, worker = SERVICES["cpu-worker-pool"], SERVICES["cpu-worker"]
    differs = {key for key in pool if pool[key] != worker.get(key)}
    assert differs == {"profiles", "networks", "deploy"} and pool.keys() ^ worker.keys() == {"profiles", "build"}
    assert pool["networks"] == {"backend": {"aliases": ["cpu-worker"]}}
    assert pool["deploy"] == worker["deploy"] | {"replicas": "${AUTOSCALE_MAX:-10}"}
    assert proxy.POOL == "cpu-worker-pool"
    grace = float(pool["stop_grace_period"].removesuffix("s"))
    assert grace < proxy.ENGINE_SECONDS < pool_client.SECONDS, "who asks waits longer than who answers"


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_is_pinned_and_health_means_something(name: str) -> None:
    service = SERVICES[name]
    tag = service["image"].rpartition(":")[2]
    assert tag and tag != "latest" and "/" not in tag
    built = ROOT / service["build"]["dockerfile"] if "build" in service else None
    inside = built is not None and "HEALTHCHECK" in built.read_text()
    assert name in NO_SHELL or "healthcheck" in service or inside


def test_only_the_front_is_published_and_on_loopback_by_default() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"nginx", "prometheus", "grafana"}
    for ports in published.values():
        assert all(port.startswith("${BIND:-127.0.0.1}:") for port in ports)


def test_a_coordinator_hears_where_it_is_published_and_metrics_are_not() -> None:
    assert SERVICES["coordinator"]["environment"]["PUBLISHED"] == "${BIND:-127.0.0.1}"
    for name in ("coordinator", "cpu-worker", "gpu-worker"):
        assert SERVICES[name]["environment"]["METRICS_PUBLISHED"] == "internal" and "ports" not in SERVICES[name]
        closed = {"bind": "0.0.0.0", "metrics_published": "internal"}
        exposure.check(Settings.model_validate(closed | {"published": "127.0.0.1"}))
        with pytest.raises(exposure.ExposureError, match="CLUSTER_TOKEN"):
            exposure.check(Settings.model_validate(closed | {"published": "0.0.0.0"}))


def test_what_keeps_data_and_computes_is_on_the_inner_network_alone() -> None:
    assert COMPOSE["networks"]["backend"] == {"internal": True}
    assert [
        name
        for name in ("redis", "cpu-worker", "gpu-worker", "redis-exporter")
        if SERVICES[name]["networks"] != ["backend"]
    ] == []


def test_a_scaled_service_has_neither_ports_nor_a_fixed_name() -> None:
    scaled = [name for name, service in SERVICES.items() if "replicas" in service["deploy"]]
    assert {"coordinator", "cpu-worker", "web"} <= set(scaled)
    assert not [name for name in scaled if "ports" in SERVICES[name]]


def test_a_gpu_worker_starts_on_demand_and_needs_its_gpu() -> None:
    worker = SERVICES["gpu-worker"]
    assert worker["profiles"] == ["gpu"] and worker["environment"]["GPU_ENABLED"] == "true"
    (device,) = worker["deploy"]["resources"]["reservations"]["devices"]
    assert device["driver"] == "nvidia" and {"gpu", "compute", "utility"} <= set(device["capabilities"])
    assert worker["volumes"] != SERVICES["cpu-worker"]["volumes"], "another cache: other libraries compile into it"


def test_programs_reach_nginx_alone_unless_the_outside_is_opened_to_them() -> None:
    closed = {"internal": True, "driver_opts": {"com.docker.network.bridge.inhibit_ipv4": "true"}}
    assert COMPOSE["networks"]["programs"] == closed, "neither the outside nor this machine"
    there = {name for name, service in SERVICES.items() if "programs" in service["networks"]}
    assert there == {"nginx", "runner", "runner-token"}
    assert SERVICES["runner"]["networks"] == SERVICES["runner-token"]["networks"] == ["programs"]
    assert SERVICES["runner"]["profiles"] == SERVICES["runner-token"]["profiles"] == ["runner"]
    assert SERVICES["runner"]["environment"]["WORKER_API"] == "http://nginx:3000"
    opened = yaml.safe_load((ROOT / "deploy/runner-egress.yml").read_text())
    assert opened == {"services": {"runner": {"networks": ["programs", "egress"]}}, "networks": {"egress": {}}}


def test_no_credential_is_in_the_container_where_programs_run() -> None:
    """The runner receives its token from another container at its start, before it runs programs."""
    runner, keeper = SERVICES["runner"], SERVICES["runner-token"]
    assert "secrets" not in runner and runner["init"] is False
    assert runner["volumes"] == ["runner-work:/var/lib/runner", "runner-token:/run/runner-token:ro"]
    assert keeper["volumes"] == ["runner-token:/run/runner-token"]
    assert keeper["secrets"] == [{"source": "runner_token", "target": "worker_token"}]
    assert not re.search(r"TOKEN|KEY|PASSWORD|REDIS|SECRET", " ".join([*runner["environment"], *keeper["environment"]]))
    assert "in_container" in (ROOT / "runner/Dockerfile").read_text().splitlines()[-1] and "command" not in runner


def test_no_password_has_a_default() -> None:
    for path in (ROOT / "docker-compose.yml", ROOT / ".env.example", *DOCKERFILES):
        text = path.read_text()
        assert not re.search(r"(?i)(password|secret|token)\w*[:=] *[A-Za-z0-9]{4,}", text), path
    assert all(secret["file"].startswith("${SECRETS_FOLDER:-./secrets}/") for secret in COMPOSE["secrets"].values())


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_an_image_runs_as_a_number_and_carries_labels(path: Path) -> None:
    text = path.read_text()
    assert "# syntax" not in text
    user = "10002:10002" if path.parent.name == "runner" else "10001:10001"
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE)[-1] == user
    for label in ("title", "description", "version", "revision"):
        assert f"org.opencontainers.image.{label}=" in text, label
    assert re.search(r"^ARG [A-Z]+_IMAGE=\S+:\S+$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("service", "folders"),
    [
        ("coordinator", {"threads_protocol", "jobs", "engines", "coordinator"}),
        ("cpu_worker", {"threads_protocol", "jobs", "cpu_worker"}),
        ("gpu_worker", {"threads_protocol", "jobs", "gpu_worker"}),
        # The build folder contains engines only for their package lists.
        ("runner", {"threads_protocol", "jobs", "engines", "runner"}),
    ],
)
def test_an_images_copy_list_is_its_import_boundary(service: str, folders: set[str]) -> None:
    text = (ROOT / service / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY ([a-z_]+) ", text, re.MULTILINE))
    assert copied == folders
    let_through = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{folder}" for folder in folders} <= set(let_through), "an empty folder would be copied"
    requirements = f"requirements/{service.replace('_', '-')}.txt"
    assert requirements in text and "--require-hashes" in text


def test_the_autoscalers_image_holds_its_package_and_what_it_shares_with_the_script() -> None:
    text = (ROOT / "deploy/autoscaler/Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (deploy\S*) ", text, re.MULTILINE))
    assert copied == {"deploy/__init__.py", "deploy/autoscaler", "deploy/docker/autoscale.py"}
    assert {f"!{name}" for name in copied} <= set((ROOT / ".dockerignore").read_text().splitlines())
    assert "requirements/autoscaler.txt" in text and "--require-hashes" in text


def test_the_base_images_script_makes_every_image_that_debian_has() -> None:
    script = (ROOT / "deploy/base-images.sh").read_text()
    built = {service["image"] for service in SERVICES.values() if "build" in service}
    wanted = {service["image"].rpartition(":")[0] for service in SERVICES.values() if service["image"] not in built}
    wanted |= {
        line.rpartition(":")[0].partition("=")[2]
        for path in DOCKERFILES
        for line in re.findall(r"^ARG [A-Z]+_IMAGE=.+$", path.read_text(), re.MULTILINE)
    }
    missing = {name for name in wanted if not re.search(rf"\b{re.escape(name)}\b", script)}
    assert missing == {"grafana/grafana", "nvcr.io/nvidia/k8s/dcgm-exporter"}


def test_the_pages_are_built_in_their_image_from_wherever_packages_come() -> None:
    text = (ROOT / "web/Dockerfile").read_text()
    assert "npm ci" in text and "npm run build" in text and "--require-hashes" in text
    arguments = SERVICES["web"]["build"]["args"]
    for name in ("NPM_CONFIG_REGISTRY", "PIP_INDEX_URL"):
        assert arguments[name] is None, "taken from the environment, where it is set"
        assert re.search(rf"^ARG {name}$", text, re.MULTILINE)
    assert "web/dist" in (ROOT / ".dockerignore").read_text().splitlines()
    assert not re.search(r"https?://", text + (ROOT / "requirements/web.txt").read_text())
