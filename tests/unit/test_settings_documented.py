"""Tests that .env.example lists exactly the settings of the processes and of docker-compose.yml."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

from deploy.docs import setting_reference
from jobs import VERSION

ROOT = Path(__file__).resolve().parents[2]
FILES = tuple(ROOT / name for name in ("docker-compose.yml", "deploy/tls.yml", "deploy/ha.yml", "deploy/grpc.yml"))
FOUND = [pair for path in FILES for pair in re.findall(r"\$\{([A-Z_]+)(:-[^}]*)?\}", path.read_text())]
COMPOSE = {name: default.removeprefix(":-") for name, default in FOUND}
FIELDS = setting_reference.variables()
DEFAULTS = COMPOSE | {name.upper(): str(field.default) for name, field in FIELDS.items()}
#: Settings that are empty in other files.
SET_BY_COMPOSE = {
    "HOST_ID": "docker",
    "TRUSTED_PROXIES": "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16",
    "ARTIFACT_URL": "file:///data/artifacts",
}
ALIASES = {name.upper() for field in FIELDS.values() for name in field.names}
#: Files that can use their own variables, such as a published port.
DEPLOYMENTS = ("docker-compose.yml", "deploy/tls.yml", "deploy/ha.yml", "deploy/grpc.yml", "deploy-cluster.sh")


def used_by_deployments() -> set[str]:
    texts = [(ROOT / name).read_text() for name in DEPLOYMENTS if (ROOT / name).exists()]
    return {name for text in texts for name in re.findall(r"\$\{([A-Z][A-Z0-9_]+)", text)}


def in_example() -> dict[str, str]:
    return dict(re.findall(r"^#?([A-Z][A-Z0-9_]*)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))


def check(documented: dict[str, str], where: str) -> None:
    missing = DEFAULTS.keys() - documented.keys()
    assert not missing, f"{where} lacks {', '.join(sorted(missing))}"
    stale = documented.keys() - DEFAULTS.keys() - ALIASES - used_by_deployments()
    assert not stale, f"{where} names {', '.join(sorted(stale))}, which nothing reads"
    wrong = {name: documented[name] for name, default in DEFAULTS.items() if default and documented[name] != default}
    assert not wrong, f"{where} gives other defaults than jobs/settings.py: {wrong}"


def test_compose_gives_every_variable_the_same_default_everywhere() -> None:
    assert all(default for _, default in FOUND), "a variable without a default"
    for name, default in FOUND:
        assert default == f":-{SET_BY_COMPOSE.get(name) or DEFAULTS[name]}", name


def test_one_version_stands_everywhere() -> None:
    """Compose and npm cannot read jobs/VERSION, which all other parts do."""
    packages = [
        json.loads((ROOT / "web" / name).read_text())["version"] for name in ("package.json", "package-lock.json")
    ]
    assert {VERSION, COMPOSE["VERSION"], *packages} == {(ROOT / "jobs/VERSION").read_text().strip()}
    said = subprocess.run([ROOT / "deploy-cluster.sh", "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"{VERSION}\n"
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    assert "version" not in project["project"] and project["tool"]["hatch"]["version"]["path"] == "jobs/VERSION"


def test_the_example_holds_every_setting_with_its_default() -> None:
    check(in_example(), ".env.example")
    assert all(in_example()[name] == default for name, default in DEFAULTS.items())
