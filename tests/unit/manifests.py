"""Manifests that kubectl builds from k8s/, once for each combination of an overlay and components."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from kubernetes_validate import utils

ROOT = Path(__file__).resolve().parents[2]
Object: TypeAlias = dict[str, Any]
NAME = "app.kubernetes.io/name"
OLDEST = re.search(r"OLDEST_API=(\S+)", (ROOT / "deploy/kubernetes/target.sh").read_text())[1]  # type: ignore[index]
#: Oldest Kubernetes on which the manifests work, and newest Kubernetes whose schemas are available.
VERSIONS = (OLDEST, utils.major_minor(utils.latest_version()))
#: Kinds of other projects, for which no schema is available.
FOREIGN = {"ScaledObject"}
# Without a cache, each validation would read a file of 1 MB.
utils.schema_contents = cache(utils.schema_contents)


def built(folder: Path) -> list[Object]:
    """Return the objects of a kustomization. Without kubectl the test is skipped, or fails in CI."""
    return [parsed(text) for text in texts(folder)]


@cache
def texts(folder: Path) -> list[str]:
    """Return the texts of a kustomization's objects."""
    if shutil.which("kubectl") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("kubectl is not installed")
        pytest.skip("kubectl is not installed")
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split("\n---\n")


@cache
def parsed(text: str) -> Object:
    found: Object = yaml.load(text, yaml.CSafeLoader)
    return found


def combined(folder: Path, overlay: str, *components: str, **more: object) -> list[Object]:
    """Return the objects of `k8s/OVERLAY` with components, from a kustomization with the fields `more`."""

    def path(name: str) -> str:
        return os.path.relpath(ROOT / "k8s" / name, folder)

    parts = [path(f"components/{name}") for name in components]
    wanted = {"namespace": "threads-cluster", "resources": [path(overlay)], "components": parts, **more}
    (folder / "kustomization.yaml").write_text(json.dumps(wanted))
    return built(folder)


def of_kind(objects: list[Object], *kinds: str) -> dict[str, Object]:
    """Return the objects of these kinds, keyed by name."""
    return {item["metadata"]["name"]: item for item in objects if item["kind"] in kinds}


def workloads(objects: list[Object]) -> dict[str, Object]:
    return of_kind(objects, "Deployment", "StatefulSet")


def pod(workload: Object) -> Object:
    """Return the specification of a workload's pods."""
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def labels(workload: Object) -> dict[str, str]:
    found: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return found


def containers(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Yield each container with the name of its workload."""
    for name, workload in workloads(objects).items():
        for container in pod(workload)["containers"]:
            yield name, container


def ports(workload: Object) -> set[int]:
    return {port["containerPort"] for container in pod(workload)["containers"] for port in container.get("ports", [])}


def matches(selector: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    """Return True if a selector (by labels or `In`) selects an object with these labels."""
    by_label = all(given.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    expressions = selector.get("matchExpressions", [])
    assert all(one["operator"] == "In" for one in expressions)
    return by_label and all(given.get(one["key"]) in one["values"] for one in expressions)
