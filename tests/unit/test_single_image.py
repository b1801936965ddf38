"""Tests the image with a whole cluster without an engine; `make image-walk` starts it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.release import tree
from jobs import VERSION

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/single"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()


def test_the_image_is_built_from_the_images_of_the_stack() -> None:
    stack = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert f"ARG VALKEY_IMAGE={stack['redis']['image']}\n" in DOCKERFILE
    assert f"ARG WEB=threads/web:{VERSION}\n" in DOCKERFILE
    [service] = yaml.safe_load((FOLDER / "docker-compose.yml").read_text())["services"].values()
    assert service["image"] == f"${{REGISTRY:-}}threads/cluster:${{VERSION:-{VERSION}}}"
    assert service["build"]["args"]["WEB"] == stack["web"]["image"]


def test_the_image_contains_the_files_of_a_release() -> None:
    rules = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert allowed == {*tree.FOLDERS, *tree.FILES}


def test_the_image_requires_tokens_and_publishes_no_metrics() -> None:
    assert re.search(r"\bBIND=0\.0\.0\.0 AUTH=required METRICS_PORT=0\b", DOCKERFILE)


@pytest.mark.parametrize("has_token", [False, True])
def test_the_admin_token_is_printed_only_at_the_first_start(tmp_path: Path, has_token: bool) -> None:
    (tmp_path / "deploy/single").mkdir(parents=True)
    (tmp_path / "deploy/single/start.sh").write_text((FOLDER / "start.sh").read_text())
    (tmp_path / "deploy-cluster.sh").write_text(
        '#!/bin/sh\nmkdir -p "$CLUSTER_HOME/.cluster"\necho tc_secret >"$CLUSTER_HOME/.cluster/token"\necho "$@"\n'
    )
    (tmp_path / "deploy-cluster.sh").chmod(0o755)
    if has_token:
        (tmp_path / ".cluster").mkdir()
        (tmp_path / ".cluster/token").write_text("tc_secret\n")
    done = subprocess.run(
        ["bash", tmp_path / "deploy/single/start.sh", "--workers", "2"],
        env={**os.environ, "CLUSTER_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout == "local --port 3000 --workers 2\n"
    assert "docker exec " in done.stderr
    assert ("tc_secret" in done.stderr) is not has_token
