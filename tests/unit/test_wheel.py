"""Tests the contents of the wheel, and its client as installed without the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from deploy.release import tree
from deploy.release import wheel as release

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


#: Files and folders of a used checkout that the wheel must not contain.
LEFT_OVER = (
    ".cluster/token",
    ".env",
    ".git/config",
    ".venv/bin/python",
    "secrets/redis_password",
    "jobs/__pycache__/models.pyc",
    "tests/unit/test_wheel.py",
    "threads_cluster/server.tar",
    "web/node_modules/vite/index.js",
    "web/test/hash.test.ts",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files of the server, without the pages and the documentation, and add files of a used checkout."""
    copy = tmp_path_factory.mktemp("source")
    for name in tree.list_files(ROOT):
        if not name.startswith(("web/", "docs/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    for name in ("web/dist/index.html", "docs/images/page.png", "web/src/page.ts", *LEFT_OVER):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).touch()
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release.build(tmp_path_factory.mktemp("wheel"), source)


@pytest.fixture(scope="module")
def server(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the server of the wheel."""
    folder = tmp_path_factory.mktemp("server")
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open("threads_cluster/server.tar") as packed,
        tarfile.open(fileobj=packed) as opened,
    ):
        opened.extractall(folder, filter="data")
    return folder


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


def test_the_wheel_holds_the_client_and_the_server_as_one_file(wheel: Path) -> None:
    folders = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"threads_cluster", "threads_protocol"}


def test_the_wheel_says_that_its_packages_are_typed(wheel: Path) -> None:
    assert {"threads_cluster/py.typed", "threads_protocol/py.typed"} <= set(zipfile.ZipFile(wheel).namelist())


def test_the_server_has_all_files_that_a_cluster_needs_and_no_other(source: Path, server: Path) -> None:
    names = {path.relative_to(server).as_posix() for path in server.rglob("*") if path.is_file()}
    assert names == set(tree.list_files(source))
    assert {"deploy-cluster.sh", "docker-compose.yml", ".dockerignore", ".env.example", "LICENSE"} <= names
    assert {"jobs/VERSION", "requirements/local.txt", "jobs/store/lua/leases.lua", "web/dist/index.html"} <= names
    assert {"k8s/base/kustomization.yaml", "coordinator/Dockerfile", "deploy/release/tree.py"} <= names
    assert not names & set(LEFT_OVER)
    assert os.access(server / "deploy-cluster.sh", os.X_OK)


def test_git_and_a_search_of_the_folders_find_the_same_files(source: Path) -> None:
    def without_pages(root: Path) -> list[str]:
        return [name for name in tree.list_files(root) if not name.startswith(("web/", "docs/"))]

    assert without_pages(ROOT) == without_pages(source)


def test_an_unpacked_server_builds_the_same_wheel(wheel: Path, server: Path, tmp_path: Path) -> None:
    for path in server.rglob("*"):
        os.utime(path)
    assert release.build(tmp_path, server).read_bytes() == wheel.read_bytes()


def test_a_wheel_without_pages_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(release.BuildError, match="make web"):
        release.build(tmp_path, tmp_path)


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
