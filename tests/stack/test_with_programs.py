"""Tests the stack with a runner: what a program can read and reach. Requests then need tokens, so this runs last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import fetch, tiny_model
from tests.stack.stack import ROOT, Stack
from threads_cluster import Cluster

#: Timeout in seconds for containers, which take minutes to start on a busy machine.
pytestmark = pytest.mark.timeout(900)
#: Malicious program that prints its findings as one JSON object. REACH is a list of host:port.
NOSY = r"""
import glob, json, os, re, socket, urllib.error, urllib.request
from concurrent.futures import ThreadPoolExecutor
# Packages, and what the kernel shows.
LEFT_OUT = ("/usr", "/opt/runner/venv", "/proc", "/sys", "/dev")
SHAPE = re.compile(rb"tc_[a-z0-9]{10}_[A-Za-z0-9_-]{43}|(?<![0-9a-f])[0-9a-f]{48}(?![0-9a-f])|redis://[^ \n]+")

def files():
    for top, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(top, name) not in LEFT_OUT]
        yield from (os.path.join(top, name) for name in names)
    for name in ("environ", "cmdline", "maps", "fd/*", "task/*/environ"):
        yield from glob.glob("/proc/[0-9]*/" + name)

def content(path):
    try:  # a pipe would be waited for
        if os.path.isfile(path) and os.path.getsize(path) < 1 << 24:
            with open(path, "rb", buffering=0) as file:
                return file.read(1 << 24)
    except (OSError, ValueError):
        pass
    return b""

def reached(place):
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 10).close()
    except OSError:
        return False
    return True

def status(path):
    try:
        return urllib.request.urlopen("http://nginx:3000" + path, timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code

def keeper():
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(60)
        link.connect("/run/runner-token/socket")
        return link.recv(4096).decode()

def writable(folder):
    try:
        with open(folder + "/x", "w"):
            return True
    except OSError:
        return False

def opened(path):
    try:
        with open(path, "rb") as file:
            return len(file.read(1)) >= 0
    except OSError:
        return False

seen = [(path, content(path)) for path in files()]
with open("/proc/self/status") as file:
    mine = dict(line.split(":\t", 1) for line in file.read().splitlines())
print(json.dumps({
    "looked": sum(bool(text) for _, text in seen),
    "found": sorted({match.decode(errors='replace') for _, text in seen for match in SHAPE.findall(text)}),
    "environment": dict(os.environ),
    "uid": os.getuid(), "capabilities": int(mine["CapEff"], 16), "no_new_privileges": mine["NoNewPrivs"],
    "reached": [place for place, open in zip(REACH, ThreadPoolExecutor(32).map(reached, REACH)) if open],
    "anonymous": [status("/api/jobs"), status("/api/status"), status("/metrics")],
    "keeper": keeper(),
    "of_the_runner": [name for name in ("environ", "mem", "maps", "fd/3") if opened("/proc/1/" + name)],
    "writable": [place for place in ("/", "/etc", "/opt/runner", "/usr/bin", "/run/runner-token") if writable(place)],
}))
"""


@pytest.fixture(scope="module")
def token(stack: Stack) -> str:
    stack.set("ENGINES", "llamacpp")
    stack.deploy("docker", "1", "0", "--runner")
    return (stack.folder / "secrets/cluster_token").read_text().strip()


def run(stack: Stack, token: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program with `cluster run`, like a user."""
    environment = {**os.environ, "CLUSTER_URL": stack.api_url, "CLUSTER_TOKEN": token}
    client = [sys.executable, "-c", "import sys; from threads_cluster.cli.main import main; sys.exit(main())"]
    return subprocess.run(
        [*client, "run", "--no-files", "--", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture(scope="module")
def seen(stack: Stack, token: str) -> dict[str, Any]:
    """Return the facts and findings that the program prints."""
    addresses = [
        f"{network['IPAddress']}:{port}"
        for service, *ports in (("redis", 6379), ("coordinator", 3000, 9090), ("prometheus", 9090), ("web", 8080))
        for network in stack.inspect(stack.ids(service)[0])[0]["NetworkSettings"]["Networks"].values()
        for port in ports
    ]
    [programs] = json.loads(stack.run("docker", "network", "inspect", f"{stack.project}_programs").stdout)
    gateway = programs["IPAM"]["Config"][0].get("Gateway", "172.17.0.1")
    names = ["redis:6379", "coordinator:3000", "runner-token:80", "nginx:3000"]
    reach = [*names, *addresses, f"{gateway}:{stack.api_url.rpartition(':')[2]}", "1.1.1.1:53"]
    done = run(stack, token, "python3", "-c", f"REACH = {json.dumps(reach)}\n{NOSY}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_program_runs_and_its_exit_code_and_output_come_back(stack: Stack, token: str) -> None:
    done = run(stack, token, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n") and "err\n" in done.stderr


def test_a_program_finds_no_credential_in_any_file_or_process(stack: Stack, token: str, seen: dict[str, Any]) -> None:
    secrets = {path.read_text().strip() for path in (stack.folder / "secrets").iterdir()}
    assert token in secrets and (stack.folder / "secrets/runner_token").read_text().startswith("tc_")
    assert seen["looked"] > 500
    assert not [text for text in seen["found"] if any(text in secret for secret in secrets)]
    assert not [
        text for text in seen["environment"].values() if any(text in secret for secret in secrets if len(text) > 8)
    ]
    assert seen["of_the_runner"] == [] and seen["keeper"] == ""


def test_a_program_reaches_nginx_alone_and_nothing_there_without_a_token(seen: dict[str, Any]) -> None:
    assert seen["reached"] == ["nginx:3000"]
    assert seen["anonymous"] == [401, 401, 404]


def test_a_program_has_no_rights_and_changes_nothing_of_its_container(seen: dict[str, Any]) -> None:
    assert (seen["uid"], seen["capabilities"], seen["no_new_privileges"]) == (10002, 0, "1")
    assert seen["writable"] == []


def test_a_runner_that_dies_is_back_and_has_its_token_again(stack: Stack, token: str) -> None:
    [runner] = stack.ids("runner")
    stack.kill_hard(runner)
    assert run(stack, token, "echo", "again").stdout == "again\n"
    rows = fetch.get(f"{stack.url}/api/workers", headers={"Authorization": f"Bearer {token}"}).json()["workers"]
    assert [row["id"] for row in rows if row["device"] == "runner" and row["live"]] == ["runner-1"]


def test_a_model_in_a_container_answers_through_nginx_and_the_tunnels_of_its_runner(
    stack: Stack, token: str, tmp_path: Path
) -> None:
    tiny_model.write(tmp_path / "tiny.gguf")
    with Cluster(stack.api_url, token) as cluster:
        cluster.artifacts.put(tmp_path / "tiny.gguf", name="tiny")
        made = {"name": "chat", "engine": "llamacpp", "model": "tiny", "parameters": {"context": 128, "threads": 1}}
        headers = {"Authorization": f"Bearer {token}"}
        fetch.post(f"{stack.api_url}/api/services", json=made, headers=headers, timeout=60).raise_for_status()
        assert cluster.services.wait("chat", timeout=280)["ready"] == 1
        asked = {"model": "chat", "prompt": "once", "max_tokens": 3}
        for _ in range(8):  # more than the number of coordinators
            answer = fetch.post(f"{stack.api_url}/v1/completions", json=asked, headers=headers, timeout=60)
            assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 3, answer.text
        cluster.services.delete("chat")
