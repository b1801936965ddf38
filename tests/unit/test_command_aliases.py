"""Tests `gswarm` and `grid-cli`: how their commands are translated, and which are rejected."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from threads_cluster.cli import main as cli
from threads_cluster.compat import aliases

ROOT = Path(__file__).resolve().parents[2]


def there(_words: object) -> bool:
    return True


def gswarm(text: str) -> str:
    return " ".join(aliases.translate(aliases.GSWARM, text.split(), there))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("nodes", "hosts"),
        ("node status gpu1 --json", "host gpu1 --json"),
        ("profiler start --name night --freq 200", "profile start night --hz 5"),
        ("profiler start --freq=1000", "profile start --hz 1"),
        ("profiler stop --name night", "profile stop night"),
        ("profiler analyze --data F.json --plot OUT.pdf", "profile analyze --data F.json --plot OUT.pdf"),
        ("model move M --from disk --to gpu0 --keep-source", "model move M --from disk --to gpu0 --keep-source"),
        (
            "model download M --source huggingface --url https://x/m.gguf --type llm --node n --device disk",
            "model download M --source https://x/m.gguf --host n --device disk",
        ),
        (
            "model download M --source huggingface --url https://huggingface.co/ORG/REPO",
            "model download M --source https://huggingface.co/ORG/REPO",
        ),
        ("profiler start", "profile start"),
        ("profiler stop", "profile stop"),
        ("model download M --source hf://a/b", "model download M --source hf://a/b"),
        ("model list --location disk", "model list --location disk"),
        ("model delete M --device disk --node n", "model delete M --device disk --node n"),
        ("data create --source URL --device n:dram", "data create --source URL --device n:dram"),
        ("data transfer ID --to n:dram", "data transfer ID --to n:dram"),
        ("model serve M --device gpu0 --node gpu1", "serve M --gpus 1 --host gpu1"),
        ("model serve M --device cpu", "serve M"),
        ("model serve M --device gpu1:gpu0", "serve M --gpus 1 --host gpu1"),
        ("model serve M --port 8080", "serve M --port 8080"),
        ("model status M --node gpu1", "service show M"),
        ("model stop M", "service stop M"),
        ("queue tasks --status running", "queue tasks --status running"),
        ("queue history --limit 20", "queue history --limit 20"),
        ("queue tasks --help", "queue tasks --help"),
    ],
)
def test_words_of_gswarm_become_ours(theirs: str, ours: str) -> None:
    assert gswarm(theirs) == ours


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        (
            "queue tasks --sort age",
            "unknown option --sort; the options are --status, --json; see: cluster queue tasks --help",
        ),
        ("queue tasks --status", "--status needs a value"),
        ("queue cancel a b", "unexpected argument 'b'; see: cluster queue cancel --help"),
        ("queue status --keep-source", "unknown option --keep-source"),
        ("profiler start --freq 3", "milliseconds from 10 to 1000; got 3"),
        ("profiler start --freq ²", "milliseconds from 10 to 1000"),
        ("profiler start --freq " + "9" * 5000, "milliseconds from 10 to 1000"),
        ("model serve M --device disk", "must be cpu, or a GPU such as gpu0 or HOST:gpu0; got disk"),
        ("host start --port 8090", "host start is not supported; use ./deploy-cluster.sh local"),
        (
            "client connect h:8090 --resilient",
            "client connect is not supported; use the line that ./deploy-cluster.sh invite prints",
        ),
        ("fly away", "command fly away does not exist; the commands are status, nodes,"),
    ],
)
def test_what_has_no_meaning_here_is_refused_and_names_ours(theirs: str, why: str) -> None:
    with pytest.raises(aliases.NotTranslatable) as refused:
        gswarm(theirs)
    assert why in str(refused.value)


def test_a_command_that_this_version_lacks_is_said_to_be_missing() -> None:
    with pytest.raises(
        aliases.NotTranslatable, match=r"health corresponds to cluster health, which this version lacks"
    ):
        aliases.translate(aliases.GRID_CLI, ["health"], lambda _words: False)


def test_a_line_of_shell_runs_on_a_runner_or_over_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", "a | b", "--log-level", "DEBUG"]
    assert aliases.translate(aliases.GRID_CLI, words, there) == ["run", "--shell", "a | b"]
    (tmp_path / "cluster.yaml").write_text("nodes: [gpu1]\n")
    over_ssh = ["run", "--on", "ssh", "--", "/bin/sh", "-c", "a | b"]
    assert aliases.translate(aliases.GRID_CLI, words, there) == over_ssh
    with pytest.raises(aliases.NotTranslatable, match=r"cluster\.yaml"):
        aliases.translate(aliases.GRID_CLI, words, lambda words: "--on" not in words)
    (tmp_path / "cluster.yaml").unlink()
    (tmp_path / "config").mkdir()
    (tmp_path / "config/cluster_config.yaml").write_text("nodes: [gpu1]\n")
    config = ["--config", "config/cluster_config.yaml"]
    assert aliases.translate(aliases.GRID_CLI, words, there) == [*over_ssh[:3], *config, *over_ssh[3:]]
    assert aliases.translate(aliases.GRID_CLI, ["health"], there) == ["health", *config]
    assert aliases.translate(aliases.GRID_CLI, ["cluster", "stop"], there) == ["down", *config]
    for wrong in (["run"], ["run", "true", "--log-level", "LOUD"], ["run", "true", "twice"]):
        with pytest.raises(aliases.NotTranslatable):
            aliases.translate(aliases.GRID_CLI, wrong, there)


@pytest.mark.parametrize("row", [*aliases.GSWARM, *aliases.GRID_CLI], ids=lambda row: row.foreign)
def test_our_commands_know_the_flags_that_they_are_given(row: aliases.Row) -> None:
    """A translated command receives only flags that it has, and --json unless it runs a program."""
    if not aliases.has_command(row.native.split()):
        return
    command: Any = cli.commands()
    for word in row.native.split():
        command = command.commands[word]
    known = {option for parameter in command.params for option in parameter.opts}
    values = {"--freq": "100", "--port": "8080", "--device": "gpu0", "--location": "disk", "--log-level": "DEBUG"}
    given = [
        word
        for flag, translate in row.flags.items()
        for word in translate(values.get(flag, "x"))
        if word.startswith("--")
    ]
    assert known.issuperset({*given, *(() if row.foreign == "run" else ("--json",))})


def test_aliases_are_installed_together_with_cluster() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    text = (ROOT / "deploy/environment.sh").read_text()
    for name, place in scripts.items():
        module, _, function = place.partition(":")
        assert module == "threads_cluster.entry_points" and f"write_command {name} {function}\n" in text


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        (["--help"], 0, "gswarm queue cancel", ""),
        ([], 2, "gswarm queue cancel", ""),
        (["queue", "tasks", "--sort", "\x1b[31m"], 2, "", "error: gswarm queue tasks: unknown option --sort"),
        (["queue", "status"], 3, "", "error: "),
    ],
)
def test_it_ends_as_cluster_does(words: list[str], code: int, out: str, err: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from threads_cluster.compat.aliases import gswarm; gswarm()", *words]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "CLUSTER_URL": "http://127.0.0.1:1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, out in done.stdout, err in done.stderr) == (code, True, True), done.stderr
    assert "\x1b[31m" not in done.stderr and "Traceback" not in done.stderr


def test_gswarm_reports_its_configuration_file_as_not_read(tmp_path: Path) -> None:
    file = tmp_path / ".gswarm" / "config.yaml"
    assert aliases.describe_unread_file(tmp_path) == aliases.describe_unread_file(None) == ""
    file.parent.mkdir()
    file.write_text("cluster:\n  host: node1\n  port: 8090\nqueue: {max_concurrent_tasks: 4}\nother: 1\n")
    note = aliases.describe_unread_file(tmp_path)
    assert note == (
        f"note: {file} is not read. Instead of cluster, use cluster login URL. Instead of queue, use RUNNER_SLOTS, and "
        "--timeout and --retries of a job. See docs/coming-from/gswarm.md"
    )
    command = [sys.executable, "-c", "from threads_cluster.compat.aliases import gswarm; gswarm()", "--help"]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, f"{note}\n")
