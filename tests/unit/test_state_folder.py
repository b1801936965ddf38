"""CLUSTER_HOME moves the state of a cluster out of the folder with the code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def read_folder(module: str, code: Path = ROOT, **variables: str) -> Path:
    """Return the LOCAL_FOLDER of a settings module in a new process that runs the code of a folder."""
    environment = {name: value for name, value in os.environ.items() if name not in ("CLUSTER_HOME", "XDG_DATA_HOME")}
    script = f"from {module}.settings import LOCAL_FOLDER; print(LOCAL_FOLDER)"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(code)!r}); {script}"]
    done = subprocess.run(command, env=environment | variables, cwd="/", capture_output=True, text=True, check=True)
    return Path(done.stdout.rstrip("\n"))


@pytest.mark.parametrize("module", ["jobs", "threads_cluster"])
def test_a_checkout_holds_its_state_unless_cluster_home_is_set(module: str, tmp_path: Path) -> None:
    assert read_folder(module) == ROOT / ".cluster"
    assert read_folder(module, CLUSTER_HOME=str(tmp_path / "a b")) == tmp_path / "a b" / ".cluster"


def test_an_installed_client_looks_in_the_data_folder_of_the_user(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    shutil.copytree(ROOT / "threads_cluster", packages / "threads_cluster")
    home, data = tmp_path / "home", tmp_path / "my data"
    expected = home / ".local/share/threads-cluster/.cluster"
    assert read_folder("threads_cluster", packages, HOME=str(home)) == expected
    assert read_folder("threads_cluster", packages, XDG_DATA_HOME=str(data)) == data / "threads-cluster/.cluster"
