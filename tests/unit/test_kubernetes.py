"""Checks k8s/ without a cluster; tests/kubernetes checks the running one."""

from __future__ import annotations

import os
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from jobs import metrics
from jobs.network import exposure
from jobs.settings import Settings
from tests.unit.manifests import (
    FOREIGN,
    NAME,
    OLDEST,
    ROOT,
    VERSIONS,
    Object,
    built,
    combined,
    containers,
    labels,
    matches,
    of_kind,
    pod,
    ports,
    workloads,
)

OPTIONAL = ("gpu", "ingress", "keda", "runner", "storage")
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
#: Secrets that deploy-cluster.sh creates, and the files in each.
SECRETS = {
    "redis": {"redis.acl", "redis_password"},
    "coordinator": {"redis_url", "cluster_token", "secrets_key"},
    "worker": {"redis_url"},
    "redis-exporter": {"redis_exporter.json"},
    "grafana": {"grafana_admin_password"},
}
DOCKERFILES = [*ROOT.glob("*/Dockerfile"), *ROOT.glob("deploy/*/Dockerfile")]
#: A Secret created by users: a token for each pod, under the pod's name.
RUNNER_TOKENS = "runner-tokens"


def combos() -> list[tuple[str, tuple[str, ...]]]:
    """Yield every overlay with every choice of optional components; prod has an autoscaler, so KEDA is not combined."""
    return [("base", ()), ("base", OPTIONAL)] + [
        (overlay, chosen)
        for overlay in ("overlays/dev", "overlays/prod")
        for count in range(len(OPTIONAL) + 1)
        for chosen in combinations(OPTIONAL, count)
        if not (overlay == "overlays/prod" and "keda" in chosen)
    ]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """Return the overlay dev with all components."""
    return combined(tmp_path_factory.mktemp("k"), "overlays/dev", *OPTIONAL)


@pytest.fixture(scope="module")
def base() -> list[Object]:
    return built(ROOT / "k8s/base")


@pytest.fixture(scope="module")
def prod() -> list[Object]:
    return built(ROOT / "k8s/overlays/prod")


# -- what is built ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_combination_is_built_and_each_object_follows_the_schemas(tmp_path: Path) -> None:
    seen: dict[int, Object] = {}
    for number, (overlay, chosen) in enumerate(combos()):
        folder = tmp_path / str(number)
        folder.mkdir()
        seen |= {id(item): item for item in combined(folder, overlay, *chosen)}
    assert len(seen) > 50
    for item in seen.values():
        for version in VERSIONS:
            if item["kind"] in FOREIGN:
                with pytest.raises(kubernetes_validate.SchemaNotFoundError):
                    kubernetes_validate.validate(item, version, strict=True)
            else:
                kubernetes_validate.validate(item, version, strict=True)


def test_the_schemas_refuse_what_is_wrong(base: list[Object]) -> None:
    wrong = {**workloads(base)["coordinator"], "sepc": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_the_oldest_version_is_stated_wherever_users_look() -> None:
    assert f"Kubernetes {OLDEST} or later" in (ROOT / "deploy-cluster.sh").read_text()
    assert f"- Kubernetes {OLDEST} or later" in (ROOT / "docs/kubernetes.md").read_text()


def test_each_waiver_has_a_reason_in_the_documentation() -> None:
    """`make kubernetes-lint` reports waivers that nothing needs."""
    lines = "\n".join(file.read_text() for file in DOCKERFILES)
    ignored = re.findall(r"^# hadolint ignore=(\w+)$", lines, re.MULTILINE)
    waived = {*yaml.safe_load((ROOT / "k8s/checkov.yaml").read_text())["skip-check"], *FOREIGN, *ignored}
    (table,) = re.findall(r"\n\| waived check .*?\n\n", (ROOT / "docs/kubernetes.md").read_text(), re.DOTALL)
    assert set(re.findall(r"^\| (?:schema of )?`(\w+)`.* \| \S.* \| \S.* \|$", table, re.MULTILINE)) == waived


@pytest.mark.parametrize("overlay", ["dev", "prod"])
def test_a_dry_run_without_a_cluster_writes_the_overlay_with_counts_and_secrets(overlay: str, tmp_path: Path) -> None:
    plain = built(ROOT / "k8s/overlays" / overlay)
    written = render(overlay, tmp_path / "manifests.yaml")
    (notes,) = [item["data"] for item in written if item["metadata"]["name"] == "deployment"]
    secrets = of_kind(written, "Secret")
    assert (notes["workers"], notes["overlay"]) == ("3", f"k8s/overlays/{overlay}")
    assert {name.rpartition("-")[0]: set(secret["data"]) for name, secret in secrets.items()} == SECRETS
    if overlay == "dev":  # in prod, an autoscaler sets the number
        assert workloads(written)["cpu-workers"]["spec"].pop("replicas") == 3
    for workload in workloads(written).values():
        for volume in pod(workload).get("volumes", []):
            if (secret := volume.get("secret")) and secret["secretName"] in secrets:
                secret["secretName"] = secret["secretName"].rpartition("-")[0]
    rest = [one for one in written if one["kind"] != "Secret" and one["metadata"]["name"] != "deployment"]
    assert rest == plain


def render(overlay: str, file: Path) -> list[Object]:
    """Return the manifests that deploy-cluster.sh would apply to an empty cluster."""
    start = ["./deploy-cluster.sh", "kubernetes", "3", "0", "--context", "none", "--namespace", "threads-cluster"]
    command = [*start, "--overlay", overlay, "--dry-run", "--manifests", str(file)]
    environment = {**os.environ, "KUBECONFIG": os.devnull}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and f"--filename {file}" in done.stdout, done.stderr
    assert file.stat().st_mode & 0o777 == 0o600, "the file contains passwords"
    return list(yaml.load_all(file.read_text(), yaml.CSafeLoader))


def test_names_are_those_of_the_specification(everything: list[Object]) -> None:
    assert set(of_kind(everything, "Namespace")) == {"threads-cluster"}
    assert {"coordinator", "cpu-workers", "gpu-workers"} <= set(of_kind(everything, "Deployment"))
    services = of_kind(everything, "Service")
    assert {"coordinator-service", "coordinator", "load-balancer-service"} <= set(services)
    assert "cluster-network-policy" in of_kind(everything, "NetworkPolicy")
    volume = of_kind(everything, "PersistentVolume")["cluster-storage"]["spec"]
    assert volume["capacity"] == {"storage": "100Gi"} and volume["accessModes"] == ["ReadWriteMany"]
    assert (volume["persistentVolumeReclaimPolicy"], volume["storageClassName"]) == ("Retain", "fast-ssd")
    assert volume["nfs"] == {"server": "nfs-server.example.com", "path": "/cluster-data"}


def test_all_lies_in_one_namespace_and_nothing_has_a_right(everything: list[Object]) -> None:
    clusterwide = {"Namespace", "PriorityClass", "PersistentVolume"}
    for item in everything:
        assert item["kind"] in clusterwide or item["metadata"]["namespace"] == "threads-cluster", item["metadata"]
    assert not of_kind(everything, "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


# -- pods -------------------------------------------------------------------------------------------------------------


def test_pods_keep_to_the_restricted_profile(everything: list[Object]) -> None:
    enforced = of_kind(everything, "Namespace")["threads-cluster"]["metadata"]["labels"]
    assert enforced["pod-security.kubernetes.io/enforce"] == "restricted"
    for name, workload in workloads(everything).items():
        spec = pod(workload)
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True and security["runAsUser"] > 0 and security["runAsGroup"] > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys(), name
        kinds = {key for volume in spec.get("volumes", []) for key in volume} - {"name"}
        assert kinds <= {"emptyDir", "secret", "configMap", "projected", "persistentVolumeClaim"}, name
    for name, container in containers(everything):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }, name


def test_no_pod_has_a_token_of_the_cluster(everything: list[Object]) -> None:
    accounts = of_kind(everything, "ServiceAccount")
    used = [pod(workload)["serviceAccountName"] for workload in workloads(everything).values()]
    assert sorted(used) == sorted(accounts), "one for each workload"
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())
    assert all(pod(workload)["automountServiceAccountToken"] is False for workload in workloads(everything).values())


def test_users_are_those_of_compose(everything: list[Object]) -> None:
    for name, workload in workloads(everything).items():
        service = COMPOSE[labels(workload)[NAME]]
        security = pod(workload)["securityContext"]
        assert f"{security['runAsUser']}:{security['runAsGroup']}" == service["user"], name


def test_every_container_has_requests_limits_and_a_pinned_image(everything: list[Object]) -> None:
    for name, container in containers(everything):
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys() & resources["limits"].keys(), name
        assert not container["image"].endswith(":latest") and ":" in container["image"]
        assert container["imagePullPolicy"] == "IfNotPresent"
    for workload in workloads(everything).values():
        for volume in pod(workload).get("volumes", []):
            assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": ""}), "an emptyDir takes a node's disk"


def test_requests_and_limits_are_those_of_the_specification(everything: list[Object]) -> None:
    found = {name: container["resources"] for name, container in containers(everything) if "worker" in name}
    gpu = {"nvidia.com/gpu": 1}
    assert found == {
        "cpu-workers": {
            "requests": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"cpu": "2000m", "memory": "4Gi"},
        },
        "gpu-workers": {
            "requests": {"cpu": "1000m", "memory": "2Gi", **gpu},
            "limits": {"cpu": "4000m", "memory": "8Gi", **gpu},
        },
    }


def test_images_are_those_of_compose(everything: list[Object]) -> None:
    ours = {container["image"] for _, container in containers(everything)}
    theirs = {re.sub(r"\$\{[A-Z]+:-([^}]*)\}", r"\1", service["image"]) for service in COMPOSE.values()}
    # The autoscaler starts containers of an engine; on Kubernetes, KEDA or a HorizontalPodAutoscaler is used.
    assert theirs - ours == {image for image in theirs if "dcgm-exporter" in image or "autoscaler" in image}
    assert ours <= theirs
    version = (ROOT / "jobs/VERSION").read_text().strip()
    assert {image.rpartition(":")[2] for image in ours if image.startswith("threads/")} == {version}


def test_health_means_something_and_a_silent_redis_restarts_nobody(everything: list[Object]) -> None:
    for name, container in containers(everything):
        assert "livenessProbe" in container, name
        assert "readinessProbe" in container or container["name"] == "nginx-exporter", name
        alive = str([container["livenessProbe"], container.get("startupProbe")])
        assert "/ready" not in alive and "heartbeat" not in alive and ("valkey-cli" not in alive or name == "redis")
    ready: dict[str, Any] = {part["name"]: part.get("readinessProbe") for _, part in containers(everything)}
    assert ready["coordinator"]["httpGet"]["path"] == "/ready"
    assert "heartbeat" in str(ready["cpu-worker"]) and "heartbeat" in str(ready["gpu-worker"])


def test_who_answers_requests_stays_until_nobody_sends_it_any(everything: list[Object]) -> None:
    for name, seconds in (("coordinator", 30), ("web", 30), ("nginx", 10)):
        (container,) = [one for of, one in containers(everything) if of == name == one["name"]]
        wait = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
        assert wait > seconds and pod(workloads(everything)[name])["terminationGracePeriodSeconds"] >= wait + 15
        strategy = workloads(everything)[name]["spec"]["strategy"]["rollingUpdate"]
        assert strategy == {"maxUnavailable": 0, "maxSurge": 1}
        assert of_kind(everything, "PodDisruptionBudget")[name]["spec"]["maxUnavailable"] == 1
    assert workloads(everything)["coordinator"]["spec"]["replicas"] == 3


def test_workers_make_room_and_have_time_to_commit(everything: list[Object]) -> None:
    classes = of_kind(everything, "PriorityClass")
    for name, workload in workloads(everything).items():
        spec = pod(workload)
        if name in ("cpu-workers", "gpu-workers"):
            assert spec["priorityClassName"] == "threads-cluster-workers"
            assert spec["terminationGracePeriodSeconds"] >= 30
        elif name in ("redis", "coordinator", "nginx", "web"):
            assert spec["priorityClassName"] == "threads-cluster-services"
    assert classes["threads-cluster-services"]["value"] > classes["threads-cluster-workers"]["value"]


def test_a_gpu_worker_gets_a_gpu_and_waits_for_nobodys(everything: list[Object]) -> None:
    workload = workloads(everything)["gpu-workers"]
    assert workload["spec"]["strategy"] == {"type": "Recreate"}
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod(workload)["tolerations"]
    assert {"name": "GPU_ENABLED", "value": "true"} in pod(workload)["containers"][0]["env"]


def test_a_runners_token_is_in_a_container_without_programs_and_only_that_pods(everything: list[Object]) -> None:
    workload = workloads(everything)["runner"]
    runner, keeper = pod(workload)["containers"]
    mounts = {one["name"]: {mount["name"]: mount for mount in one["volumeMounts"]} for one in (runner, keeper)}
    assert mounts["runner"].keys() == {"tmp", "work", "door"} and mounts["runner-token"].keys() == {"door", "token"}
    assert mounts["runner"]["door"]["readOnly"] is True and "readOnly" not in mounts["runner-token"]["door"]
    assert mounts["runner-token"]["token"]["subPathExpr"] == "$(POD_NAME)"
    assert pod(workload)["shareProcessNamespace"] is False and "command" not in runner
    assert {one["name"] for one in runner["env"]} == {"WORKER_API", "HOST_ID", "WORKER_ID"} and "envFrom" not in runner
    users = [name for name, one in workloads(everything).items() if RUNNER_TOKENS in str(one)]
    assert users == ["runner"]


def test_programs_reach_nginx_alone_and_nobody_reaches_them(everything: list[Object]) -> None:
    policies = of_kind(everything, "NetworkPolicy")
    spec = policies["runner"]["spec"]
    assert "ingress" not in spec and spec["policyTypes"] == ["Ingress", "Egress"]
    (rule,) = spec["egress"]
    assert rule["to"] == [{"podSelector": {"matchLabels": {NAME: "nginx"}}}]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8080}]
    assert "runner" not in str([one["spec"] for name, one in policies.items() if name != "runner"])


# -- settings and secrets ---------------------------------------------------------------------------------------------


def test_what_pods_mount_is_made_and_secrets_are_made_by_nobody_here(everything: list[Object]) -> None:
    assert not of_kind(everything, "Secret")
    configs = of_kind(everything, "ConfigMap")
    for name, workload in workloads(everything).items():
        for volume in pod(workload).get("volumes", []):
            if "secret" in volume:
                assert volume["secret"]["secretName"] in {*SECRETS, RUNNER_TOKENS}, name
                assert volume["secret"]["defaultMode"] == 0o440
            for source in volume.get("projected", {}).get("sources", []):
                data = configs[source["configMap"]["name"]]["data"]
                assert {item["key"] for item in source["configMap"]["items"]} == set(data), name
    for name, container in containers(everything):
        for source in container.get("envFrom", []):
            assert source["configMapRef"]["name"] in configs, name
        assert not [one for one in container.get("env", []) if "secretKeyRef" in one.get("valueFrom", {})], name


def environment(name: str) -> dict[str, str]:
    lines = (ROOT / f"k8s/base/{name}.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def defaults(service: str) -> dict[str, str]:
    """Return the settings of a service in Compose with their defaults."""
    given = COMPOSE[service]["environment"]
    return {name: re.sub(r"^\$\{[A-Z_]+:-([^}]*)\}$", r"\1", str(value)) for name, value in given.items()}


def test_settings_are_known_and_start_like_composes() -> None:
    ours = environment("settings") | environment("coordinator-settings") | environment("alerts")
    assert {name.lower() for name in ours} <= Settings.model_fields.keys()
    theirs = defaults("coordinator")
    assert {name: theirs.get(name) for name in ours if name != "AUTH"} == {
        name: value for name, value in ours.items() if name != "AUTH"
    }
    assert environment("alerts") == {name: value for name, value in theirs.items() if name.startswith("ALERT_")}


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """Return the overlay prod with GPU workers, a runner and all examples for overlays in docs/kubernetes.md."""
    shown = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/kubernetes.md").read_text(), re.MULTILINE | re.DOTALL)
    whole, *parts = [yaml.safe_load(text) for text in shown]
    assert (whole["resources"], whole["components"]) == (["../prod"], ["../../components/ingress"]) and len(parts) == 3
    patches = [patch for block in (whole, *parts) for patch in block.get("patches", [])]
    literals = [
        text for block in (whole, *parts) for one in block.get("configMapGenerator", []) for text in one["literals"]
    ]
    settings = whole["configMapGenerator"][0] | {"literals": literals}
    folder = tmp_path_factory.mktemp("k")
    return combined(folder, "overlays/prod", "ingress", "gpu", "runner", patches=patches, configMapGenerator=[settings])


def variables(container: Object) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container.get("env", []) if "value" in one}


def test_labels_of_hosts_reach_coordinators_and_all_workers_but_those_of_a_variable(documented: list[Object]) -> None:
    """A runner has the labels of its token, which the script reads from the same place."""
    [settings] = [item for name, item in of_kind(documented, "ConfigMap").items() if name.startswith("settings-")]
    assert (settings["data"]["WORKER_LABELS"], settings["data"]["RESULT_TTL"]) == ("trusted,eu", "86400")
    parts = {name: one for name, one in containers(documented) if one["name"] != "runner-token"}
    for name in ("coordinator", "cpu-workers", "gpu-workers"):
        read = [source["configMapRef"]["name"] for source in parts[name]["envFrom"]]
        assert settings["metadata"]["name"] in read, name
    given = {
        name: variables(parts[name])["WORKER_LABELS"] for name in parts if "WORKER_LABELS" in variables(parts[name])
    }
    assert given == {"cpu-workers": ""}


def test_the_host_of_an_ingress_is_that_of_the_document(documented: list[Object]) -> None:
    spec = of_kind(documented, "Ingress")["threads-cluster"]["spec"]
    assert [spec["rules"][0]["host"], *spec["tls"][0]["hosts"]] == ["cluster.mine", "cluster.mine"]


def test_an_ingress_lets_every_body_through_that_nginx_does(everything: list[Object]) -> None:
    bounds = re.findall(r"client_max_body_size (\d+)m;", (ROOT / "nginx/conf/api.conf").read_text())
    said = of_kind(everything, "Ingress")["threads-cluster"]["metadata"]["annotations"]
    assert said["nginx.ingress.kubernetes.io/proxy-body-size"] == f"{max(map(int, bounds))}m"


def test_a_runner_for_models_has_what_the_document_gives_it(documented: list[Object]) -> None:
    workload = workloads(documented)["runner"]
    runner, keeper = pod(workload)["containers"]
    assert runner["resources"]["limits"] == {"cpu": "8", "memory": "24Gi"}
    assert keeper["resources"]["limits"]["memory"] == "128Mi"
    volume = workload["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]
    assert int(variables(runner)["CACHE_BYTES"]) < int(volume.removesuffix("Gi")) << 30, (
        "copies of replicas lie there too"
    )


def test_every_call_of_the_api_needs_a_token() -> None:
    ours = environment("settings") | environment("coordinator-settings")
    settings = Settings.model_validate({name.lower(): value for name, value in ours.items()} | {"bind": "0.0.0.0"})
    assert exposure.needs_token(settings)
    exposure.check(settings)


def test_redis_prometheus_and_grafana_are_set_up_as_in_compose(everything: list[Object]) -> None:
    parts = {name: container for name, container in containers(everything) if container["name"] == name}
    written = [re.sub(r"^\$\{[A-Z_]+:-([^}]*)\}$", r"\1", word) for word in COMPOSE["redis"]["command"]]
    assert parts["redis"]["command"] + parts["redis"]["args"] == ["valkey-server", *written]
    written = [re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", word) for word in COMPOSE["prometheus"]["command"]]
    assert parts["prometheus"]["args"] == written
    assert {one["name"]: one["value"] for one in parts["grafana"]["env"]} == defaults("grafana")


def test_prometheus_and_grafana_read_every_file_of_theirs(everything: list[Object]) -> None:
    configs = {name.rpartition("-")[0]: item["data"] for name, item in of_kind(everything, "ConfigMap").items()}
    rules = {path.name for path in (ROOT / "prometheus/rules").iterdir()}
    assert set(configs["prometheus"]) == rules | {"prometheus.yml", "start.sh"}
    assert set(configs["grafana-dashboards"]) == {path.name for path in (ROOT / "grafana/dashboards").iterdir()}


def test_prometheus_finds_every_replica_by_the_name_it_knows(everything: list[Object]) -> None:
    services = of_kind(everything, "Service")
    scraped = yaml.safe_load((ROOT / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    for job in scraped:
        for found in job.get("dns_sd_configs", []):
            (name,) = found["names"]
            if name == "dcgm-exporter":
                continue
            spec = services[name]["spec"]
            assert spec.get("clusterIP") == "None" or name == "grafana", name
            assert found["port"] in {port["port"] for port in spec["ports"]}, name


# -- services and policies --------------------------------------------------------------------------------------------


def test_services_select_pods_and_ports_that_are_there(everything: list[Object]) -> None:
    for name, service in of_kind(everything, "Service").items():
        selector = {"matchLabels": service["spec"]["selector"]}
        chosen = [one for one in workloads(everything).values() if matches(selector, labels(one))]
        assert len(chosen) == 1, name
        named = {port["name"] for part in pod(chosen[0])["containers"] for port in part.get("ports", [])}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named, name


def test_ports_are_documented_in_the_settings(everything: list[Object]) -> None:
    services = of_kind(everything, "Service")
    settings = Settings()
    front = {port["name"]: port["port"] for port in services["load-balancer-service"]["spec"]["ports"]}
    assert front == {"http": int(documented_default("HTTP_PORT"))}
    api = {port["name"]: port["port"] for port in services["coordinator-service"]["spec"]["ports"]}
    assert api == {"http": settings.coordinator_port, "metrics": settings.metrics_port}
    documented = {"http": "COORDINATOR_PORT", "metrics": "METRICS_PORT"}
    assert api == {name: int(documented_default(setting)) for name, setting in documented.items()}


def documented_default(name: str) -> str:
    row = re.search(rf"^#{name}=(\d+)$", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert row, name
    return row[1]


def test_everything_is_denied_that_no_policy_names(everything: list[Object]) -> None:
    policies = of_kind(everything, "NetworkPolicy")
    closed = policies["cluster-network-policy"]["spec"]
    assert closed == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name, policy in policies.items():
        for rule in policy["spec"].get("ingress", []):
            assert rule.get("from") or (name, [port["port"] for port in rule["ports"]]) == ("nginx", [8080]), name
        for rule in policy["spec"].get("egress", []):
            assert rule.get("to") and rule.get("ports"), name


def test_every_workload_has_a_policy_and_every_path_is_named_at_both_ends(everything: list[Object]) -> None:
    parts = {labels(workload)[NAME]: workload for workload in workloads(everything).values()}
    policies = of_kind(everything, "NetworkPolicy")
    assert set(policies) - {"cluster-network-policy", "dns", "client", "keda"} == set(parts)
    coming = {path for name in parts for path in paths(policies[name], parts, name, "ingress", "from")}
    going = {path for name in parts for path in paths(policies[name], parts, name, "egress", "to")}
    going |= set(paths(policies["client"], parts, "client", "egress", "to"))
    assert coming | {(one, "nginx", 8080) for one in ("client", "runner")} == going, "nginx lets in anybody"
    for _, target, port in coming:
        assert port in ports(parts[target]), f"{target} has no port {port}"


def paths(policy: Object, parts: dict[str, Any], name: str, way: str, peers: str) -> list[tuple[str, str, int]]:
    """Return the connections that a policy allows: client, server and port. Clients that set the label are `client`."""
    found = []
    for rule in policy["spec"].get(way, []):
        for peer in rule.get(peers, []):
            for other in [*parts, "client"]:
                if matches(peer["podSelector"], {NAME: other}):
                    ends = (other, name) if way == "ingress" else (name, other)
                    found += [(*ends, port["port"]) for port in rule["ports"]]
    return found


# -- overlays ---------------------------------------------------------------------------------------------------------


def test_prod_has_a_load_balancer_and_dev_has_none(prod: list[Object]) -> None:
    assert of_kind(prod, "Service")["load-balancer-service"]["spec"]["type"] == "LoadBalancer"
    dev = built(ROOT / "k8s/overlays/dev")
    assert of_kind(dev, "Service")["load-balancer-service"]["spec"]["type"] == "ClusterIP"
    assert not of_kind(dev, "HorizontalPodAutoscaler")


def test_prod_scales_cpu_workers_as_kubectl_autoscale_would(prod: list[Object]) -> None:
    spec = of_kind(prod, "HorizontalPodAutoscaler")["cpu-workers"]["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 10)
    (metric,) = spec["metrics"]
    assert metric["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}


def test_whoever_scales_workers_is_not_undone_by_the_next_apply(everything: list[Object], prod: list[Object]) -> None:
    for objects in (everything, prod):
        for name, workload in workloads(objects).items():
            assert ("replicas" in workload["spec"]) == (name not in ("cpu-workers", "gpu-workers")), name


def test_keda_counts_running_work_and_never_scales_to_none(everything: list[Object]) -> None:
    spec = of_kind(everything, "ScaledObject")["cpu-workers"]["spec"]
    settings = Settings()
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (settings.autoscale_min, settings.autoscale_max)
    assert spec["minReplicaCount"] >= 1
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["query"] == f'max({metrics.DESIRED.name}{{device="cpu"}})', "work that waits or runs"
    assert trigger["metadata"]["threshold"] == "1" and trigger["metricType"] == "AverageValue"
    assert trigger["metadata"]["ignoreNullValues"] == "false", "a number that is not known is not 0"


def test_the_audit_log_goes_to_the_storage_and_redis_does_not(everything: list[Object]) -> None:
    (container,) = pod(workloads(everything)["coordinator"])["containers"]
    assert {"name": "AUDIT_FILE", "value": "/var/lib/audit/audit.jsonl"} in container["env"]
    (claim,) = workloads(everything)["redis"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
