"""Tests that no command connects to a cluster that the user did not choose, such as a stand-in on port 3000."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.live import TOP

#: Commands that need no cluster, with the start of their first message.
WITHOUT_CLUSTER = {
    "down": "error: this folder has no cluster.yaml",
    "discover": "No cluster announced itself",
    "context list": "No contexts.",
    "context use": "error: no context has the name name",
    "context delete": "error: no context has the name name",
}
#: The same if the checkout never had a local cluster.
WITHOUT_LOCAL_CLUSTER = {**WITHOUT_CLUSTER, "up": "error: this folder has no cluster.yaml"}


def run_every_command(folder: Path, checkout: Path) -> dict[str, Any]:
    """Run every command of the client of a checkout in a network where a stand-in listens on port 3000."""
    isolated = ["unshare", "--net", "--map-root-user"]
    if not shutil.which("ip") or subprocess.run([*isolated, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this test needs network namespaces and iproute2")
    command = [*isolated, sys.executable, "-m", "tests.integration.every_command", str(checkout / ".cluster")]
    variables = {**os.environ, "PYTHONPATH": str(TOP), "XDG_CONFIG_HOME": str(folder / "config")}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["chosen"] > 0, "the stand-in counts the connections of a user who chooses it"
    assert len(answer["ran"]) > 100
    return answer


def write(checkout: Path, name: str, text: str) -> None:
    file = checkout / ".cluster" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(text)


def check_every_command(answer: dict[str, Any], message: str, without: dict[str, str]) -> None:
    """Check that no command has connected, and that each has printed the message, or its own one in `without`."""
    for words, (code, messages) in answer["ran"].items():
        if words in without:
            assert messages.startswith(without[words]), (words, messages)
        else:
            assert code in (2, 3, 125) and message in messages, (words, code, messages)
    assert answer["connections"] == 0


def test_while_the_cluster_of_the_checkout_is_down_no_command_connects_to_port_3000(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    write(checkout, "token", "secret")
    write(checkout, "url", "http://127.0.0.1:3000")  # A killed cluster leaves this file
    write(checkout, "lock", "1")
    answer = run_every_command(tmp_path, checkout)
    message = (
        f"error: the cluster of the checkout {checkout} is not running; start it with {checkout}/deploy-cluster.sh"
    )
    check_every_command(answer, message, WITHOUT_CLUSTER)


def test_on_a_joined_machine_no_command_connects_to_port_3000(tmp_path: Path) -> None:
    write(tmp_path / "checkout", "joined/host.json", '{"url": "http://127.0.0.1:3443"}')
    answer = run_every_command(tmp_path, tmp_path / "checkout")
    without = {**WITHOUT_LOCAL_CLUSTER, "logout": ""}
    check_every_command(answer, "error: no cluster answers at http://127.0.0.1:3443 (", without)


def test_without_a_context_no_command_connects_to_port_3000(tmp_path: Path) -> None:
    answer = run_every_command(tmp_path, tmp_path / "checkout")
    message = "error: no cluster is chosen; start a local cluster with ./deploy-cluster.sh local, log in with "
    check_every_command(answer, message, WITHOUT_LOCAL_CLUSTER)
