"""Checks deploy/grpc.yml and k8s/components/grpc without an engine or a cluster."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.unit import test_kubernetes as kubernetes
from tests.unit.manifests import ROOT, VERSIONS, Object, combined, containers, of_kind, pod, workloads

PORT = 50051


def test_in_compose_nginx_publishes_it_where_the_port_says_so() -> None:
    written = yaml.safe_load((ROOT / "deploy/grpc.yml").read_text())["services"]
    assert written == {
        "coordinator": {"environment": {"GRPC_PORT": str(PORT)}},
        "nginx": {"ports": [f"${{BIND:-127.0.0.1}}:${{GRPC_PORT:?set it in .env, such as {PORT}}}:{PORT}"]},
    }
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert set(services["nginx"]["networks"]) & set(services["coordinator"]["networks"]) == {"frontend"}
    assert "GRPC_PORT" not in services["coordinator"]["environment"], "nowhere unless it is asked for"


def test_the_images_have_what_it_needs() -> None:
    text = (ROOT / "coordinator/Dockerfile").read_text()
    assert "requirements/grpc.txt" in text and "-r /tmp/grpc.txt" in text
    for image in ("coordinator", "nginx"):
        [exposed] = [line for line in (ROOT / image / "Dockerfile").read_text().splitlines() if "EXPOSE" in line]
        assert str(PORT) in exposed.split()
    defaults = (ROOT / "nginx/start.sh").read_text()
    assert f"${{LISTEN_GRPC:-{PORT}}}" in defaults and f"${{COORDINATOR_CALLS:-coordinator:{PORT}}}" in defaults


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """Return the overlay dev, whose policies deny all other traffic, with the component."""
    return combined(tmp_path_factory.mktemp("k"), "overlays/dev", "gpu", "grpc", "runner")


def port_of(service: Object) -> list[Any]:
    return [port["targetPort"] for port in service["spec"]["ports"] if port["port"] == PORT]


def test_each_service_and_pod_has_the_port_and_keeps_the_others(deployed: list[Object]) -> None:
    services = of_kind(deployed, "Service")
    for name, others in (
        ("coordinator-service", {3000, 9090}),
        ("coordinator", {3000, 9090}),
        ("load-balancer-service", {80}),
    ):
        assert port_of(services[name]) == ["grpc"], name
        assert {port["port"] for port in services[name]["spec"]["ports"]} == others | {PORT}
    kubernetes.test_services_select_pods_and_ports_that_are_there(deployed)
    kubernetes.test_pods_keep_to_the_restricted_profile(deployed)
    parts = {
        name: {one["name"]: one.get("value") for one in part["env"]}
        for name, part in containers(deployed)
        if part["name"] in ("coordinator", "nginx")
    }
    assert parts["coordinator"]["GRPC_PORT"] == str(PORT) and "CLUSTER_SIZE_FILE" in parts["coordinator"]
    assert parts["nginx"]["COORDINATOR_CALLS"] == f"coordinator.$(NAMESPACE).svc.$(CLUSTER_DOMAIN):{PORT}"
    order = [one["name"] for one in pod(workloads(deployed)["nginx"])["containers"][0]["env"]]
    assert order.index("CLUSTER_DOMAIN") < order.index("COORDINATOR_CALLS"), "a name is filled in by those before it"
    assert order.index("NAMESPACE") < order.index("COORDINATOR_CALLS")


def test_policies_let_clients_and_nginx_through_and_nobody_else(deployed: list[Object]) -> None:
    policies = of_kind(deployed, "NetworkPolicy")
    kubernetes.test_every_workload_has_a_policy_and_every_path_is_named_at_both_ends(deployed)
    opened = {
        (name, way)
        for name, policy in policies.items()
        for way in ("ingress", "egress")
        for rule in policy["spec"].get(way, [])
        if PORT in [port["port"] for port in rule["ports"]]
    }
    assert opened == {("coordinator", "ingress"), ("client", "egress"), ("nginx", "ingress"), ("nginx", "egress")}
    [front] = [rule for rule in policies["nginx"]["spec"]["ingress"] if "from" not in rule]
    assert [port["port"] for port in front["ports"]] == [8080, PORT]


def test_it_follows_the_schemas_and_is_built_without_policies_too(deployed: list[Object], tmp_path: Any) -> None:
    kinds = ("Service", "Deployment", "NetworkPolicy")
    changed = [item for item in deployed if item["kind"] in kinds and str(PORT) in str(item)]
    assert len(changed) == 8
    for item in changed:
        kubernetes_validate.validate(item, VERSIONS[-1], strict=True)
    bare = combined(tmp_path, "base", "grpc")
    assert port_of(of_kind(bare, "Service")["coordinator-service"]) == ["grpc"]
