"""One deployment for all tests in this folder, created like a user creates it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.stack import ROOT, Stack, copy_of_the_checkout

IN_CI = os.environ.get("CI") == "true"
ENGINE = Path(__file__).with_name("engine.sh")


def _have_engine() -> bool:
    if shutil.which("docker") is None:
        return False
    compose = subprocess.run(["docker", "compose", "version"], capture_output=True)
    return compose.returncode == 0 and subprocess.run(["docker", "info"], capture_output=True).returncode == 0


def _have_registry_or_images() -> bool:
    """Build base images from Debian packages if this user can; otherwise use existing images or pull them."""
    if os.geteuid() == 0 and shutil.which("debootstrap"):
        subprocess.run([ROOT / "deploy/base-images.sh"], check=True, timeout=600)
        return True
    pull = ["docker", "pull", "valkey/valkey:8.1.8-trixie"]
    return subprocess.run(pull, capture_output=True, timeout=120).returncode == 0


@pytest.fixture(scope="session")
def engine() -> None:
    if IN_CI:
        subprocess.run([ENGINE], check=True, timeout=600)
    elif not _have_engine():
        pytest.skip("no Docker engine with Compose v2 answers here")
    if not _have_registry_or_images():
        assert not IN_CI
        pytest.skip("no image registry is reached, and making base images needs root and debootstrap")


@pytest.fixture(scope="session")
def stack(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Start three CPU workers, two coordinators and two web replicas behind nginx."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_of_the_checkout(folder)
    stack = Stack(folder)
    try:
        stack.deploy("docker", "3", "0", timeout=900)
        yield stack
        print(stack.run("docker", "compose", "logs", "--no-color", "--tail", "15", check=False).stdout)
    finally:
        stack.deploy("cleanup", "--yes", check=False)
