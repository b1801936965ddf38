"""Tests the client's wheel as installed by `pip install .`, without the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy with the development environment's build backend, without downloads."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, copy)
    for package in ("threads_cluster", "threads_protocol", "jobs"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=copy, check=True)
    return next((copy / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(folder), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return folder


def run(installed: Path, *arguments: str) -> str:
    """Return the output of a Python with only the wheel and its requirements; -S leaves out the checkout."""
    path = os.pathsep.join((str(installed), sysconfig.get_path("purelib")))
    environment = {"PYTHONPATH": path, "HOME": str(installed), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-W", "error", *arguments]
    done = subprocess.run(command, cwd=installed, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_client_and_nothing_of_the_servers(wheel: Path) -> None:
    folders = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"threads_cluster", "threads_protocol"}


def test_the_wheel_carries_its_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        assert "License-Expression: Apache-2.0\n" in archive.read(metadata).decode()
        carried = archive.read(metadata.replace("METADATA", "licenses/LICENSE"))
    assert carried == (ROOT / "LICENSE").read_bytes()


def test_the_wheel_requires_what_the_clients_group_holds() -> None:
    assert sorted(PROJECT["project"]["dependencies"]) == sorted(PROJECT["dependency-groups"]["client"])
    assert PROJECT["project"]["optional-dependencies"] == {
        extra: PROJECT["dependency-groups"][extra] for extra in ("ssh", "discovery", "plots", "dask")
    }


def test_python_imports_the_client_without_the_checkout(installed: Path) -> None:
    program = (
        "import importlib.util, threads_cluster; from threads_cluster import Cluster;"
        "print(threads_cluster.__file__, importlib.util.find_spec('jobs'), Cluster('http://h').url)"
    )
    assert run(installed, "-c", program).split() == [
        str(installed / "threads_cluster/__init__.py"),
        "None",
        "http://h",
    ]


def test_the_command_runs_without_the_checkout(installed: Path) -> None:
    assert re.search(r"Usage: .*cluster .*submit", run(installed, "bin/cluster", "--help"), re.DOTALL)


def test_a_kind_is_unknown_without_a_cluster_and_says_so(installed: Path) -> None:
    with pytest.raises(AssertionError, match=r"no cluster answers at http://127\.0\.0\.1:9"):
        run(installed, "bin/cluster", "--url", "http://127.0.0.1:9", "submit", "collatz", "--start-number", "1")
