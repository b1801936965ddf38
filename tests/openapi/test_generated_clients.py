"""Tests web/openapi.json with linters and with generated clients on a real cluster: make openapi-test."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.live import Live, running

ROOT = Path(__file__).resolve().parents[2]
HERE, DOCUMENT, WEB = ROOT / "tests/openapi", ROOT / "web/openapi.json", ROOT / "web/node_modules"
TOOLS = ROOT / ".cluster/cache/openapi"
TOKEN = "a-token-of-this-test"
#: Warnings about content types that openapi-python-client does not support.
KNOWN_WARNINGS = {"GET /api/authority", "POST /api/workflows", "POST /api/workflows/validate"}

pytestmark = pytest.mark.skipif(not TOOLS.exists(), reason="run: make openapi-test")


def run(*command: str | Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a tool successfully. Node.js is on PATH or in .venv."""
    path = os.pathsep.join([str(TOOLS / "bin"), os.environ["PATH"], str(ROOT / ".venv/bin")])
    environment = {**os.environ, "PATH": path, "REDOCLY_TELEMETRY": "off"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]}:\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
    return done


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with running(tmp_path_factory.mktemp("cluster"), CLUSTER_TOKEN=TOKEN) as cluster:
        yield cluster


def check(output: str) -> None:
    """Check what use_client.py and use_client.ts have read: a result and an error."""
    found: dict[str, Any] = json.loads(output)
    assert found["result"]["units"] == 1000 and not found["result"]["partial"]
    assert found["result"]["result"]["delay"]["max"] == {"n": 871, "value": 178}
    problem = found["problem"]
    assert problem["status"] == 422 and problem["field"] == "type" and "nosuch" in problem["detail"]


def test_the_description_is_valid() -> None:
    run(TOOLS / "bin/openapi-spec-validator", DOCUMENT)


def test_spectral_finds_nothing() -> None:
    rules = HERE / "spectral.yaml"
    run(TOOLS / "node_modules/.bin/spectral", "lint", "--fail-severity", "hint", "--ruleset", rules, DOCUMENT)


def test_redocly_finds_nothing() -> None:
    run(TOOLS / "node_modules/.bin/redocly", "lint", DOCUMENT, "--extends=recommended-strict")


def test_a_client_of_openapi_python_client_submits_and_reads(cluster: Live, tmp_path: Path) -> None:
    package = tmp_path / "threads_cluster_client"
    options = ["--meta", "none", "--path", str(DOCUMENT), "--output-path", str(package)]
    output = run(TOOLS / "bin/openapi-python-client", "generate", *options, folder=tmp_path).stderr
    warnings = {
        line.split(" within ")[0].removeprefix("WARNING parsing ") for line in output.splitlines() if "WARNING" in line
    }
    assert warnings == KNOWN_WARNINGS, output
    (tmp_path / "use_client.py").write_bytes((HERE / "use_client.py").read_bytes())
    check(run(TOOLS / "bin/python", "use_client.py", cluster.url(), TOKEN, folder=tmp_path).stdout)


def test_a_client_of_openapi_typescript_submits_and_reads(cluster: Live, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(TOOLS / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "use_client.ts").write_bytes((HERE / "use_client.ts").read_bytes())
    schema = tmp_path / "schema.d.ts"
    run(WEB / ".bin/openapi-typescript", DOCUMENT, "--default-non-nullable", "false", "--output", schema)
    options = ["--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler"]
    run(WEB / ".bin/tsc", *options, "use_client.ts", folder=tmp_path)
    check(run("node", "use_client.js", cluster.url(), TOKEN, folder=tmp_path).stdout)
