"""Tests that each process reports invalid settings on one line each, without a traceback, and exits with code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.joining import joining
from deploy.local.outcome import CommandError
from jobs import settings
from jobs.invalid_settings import InvalidSettings

ROOT = Path(__file__).resolve().parents[2]
ENTRY_POINTS = (
    "coordinator",
    "cpu_worker",
    "gpu_worker",
    "runner",
    "runner.in_container",
    "runner.token_keeper",
    "jobs.store.reindex",
    "deploy.local run",
)


def run(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command.split()],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ENTRY_POINTS)
def test_every_process_names_the_variable_its_value_and_what_is_allowed(command: str) -> None:
    ran = run(command, METRICS_PORT="abc")
    assert ran.stderr == "error: METRICS_PORT is 'abc', but must be an integer from 0 to 65535\n"
    assert (ran.returncode, ran.stdout) == (2, "")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CACHE_BYTES": "-1"}, "CACHE_BYTES is '-1', but must be an integer of at least 0"),
        ({"AGE_SECONDS": "nan"}, "AGE_SECONDS is 'nan', but must be a number from 1 to 31622400"),
        ({"ALERT_GPU_CELSIUS": "0"}, "ALERT_GPU_CELSIUS is '0', but must be a number above 0"),
        ({"ALERT_API_ERRORS_RATIO": "2"}, "ALERT_API_ERRORS_RATIO is '2', but must be a number above 0 and up to 1"),
        ({"GPU_ENABLED": "yes"}, "GPU_ENABLED is 'yes', but must be one of auto, true, false"),
        ({"NODE_ID": "a b"}, "WORKER_ID or NODE_ID is 'a b', but must be a text that matches ^[A-Za-z0-9._-]{0,64}$"),
        (
            {"SERVICE_ADDRESS": "x" * 65},
            f"SERVICE_ADDRESS is '{'x' * 60}'..., but must be a text of at most 64 characters",
        ),
        (
            {"AUTOSCALE_MIN": "9", "AUTOSCALE_MAX": "3"},
            "AUTOSCALE_MIN is 9, but must be at most AUTOSCALE_MAX, which is 3",
        ),
        (
            {"WORKER_API": "https://a", "COORDINATOR_URL": "https://b"},
            "WORKER_API is https://a, but COORDINATOR_URL is https://b: set only one of them",
        ),
        (
            {"METRICS_PORT": "x", "GRPC_PORT": "\n\x1b"},
            (
                "GRPC_PORT is '\\n\\x1b', but must be an integer from 0 to 65535\n"
                "METRICS_PORT is 'x', but must be an integer from 0 to 65535"
            ),
        ),
    ],
)
def test_messages(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings.load.cache_clear()
    with pytest.raises(InvalidSettings) as caught:
        settings.load()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("gpu_enabled", "meaning"), [("", "cpu-worker"), ("auto", "cpu-worker"), ("true", "gpu-worker")]
)
def test_the_node_type_worker_means_a_kind_of_worker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gpu_enabled: str, meaning: str
) -> None:
    monkeypatch.setenv("NODE_TYPE", "worker")
    monkeypatch.setenv("GPU_ENABLED", gpu_enabled)
    settings.load.cache_clear()
    assert settings.load_for(meaning).node_type == meaning
    with pytest.raises(SystemExit) as ended:
        settings.load_for("coordinator")
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: NODE_TYPE is {meaning}, but this process is a coordinator: run ")


@pytest.mark.parametrize("more", [{}, {"WORKER_API": "https://cluster.example/"}])
def test_coordinator_url_is_the_address_of_workers(monkeypatch: pytest.MonkeyPatch, more: dict[str, str]) -> None:
    for name, value in {"COORDINATOR_URL": "https://cluster.example", **more}.items():
        monkeypatch.setenv(name, value)
    settings.load.cache_clear()
    assert settings.load().worker_api.rstrip("/") == "https://cluster.example"


@pytest.mark.parametrize(
    ("variables", "labels", "message"),
    [
        ({}, "a;b", r"--labels is 'a;b', but must be a text that matches ^[A-Za-z0-9._:/, -]*$"),
        ({"AUTH": "x"}, "a", "AUTH is 'x', but must be one of auto, guest, required"),
    ],
)
def test_join_names_the_option_or_the_variable(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], labels: str, message: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CommandError) as caught:
        joining.check_settings(joining.JoinOptions(labels=labels, runner=True))
    assert (caught.value.code, str(caught.value)) == (2, message)


@pytest.fixture(autouse=True)
def _reload() -> Iterator[None]:
    yield
    settings.load.cache_clear()
