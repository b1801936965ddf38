"""Tests every command in the right columns of docs/coming-from/*.md on a real cluster."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.live import TOP, Live
from tests.integration.test_cli import run
from threads_cluster import Cluster

#: Pages in the order of docs/coming-from.md, which links to all of them.
PAGES = re.findall(r"\(coming-from/([\w-]+)\.md\)", (TOP / "docs/coming-from.md").read_text())
_TEXTS = {name: (TOP / f"docs/coming-from/{name}.md").read_text() for name in PAGES}
PAGE = "".join(_TEXTS.values())
_LINES = [line for line in PAGE.splitlines() if line.startswith("|")]
ROWS = [line.split("|") for line in _LINES if not line.startswith(("| --- ", "| In "))]
HERE = [typed for row in ROWS for typed in re.findall(r"`([^`]+)`", row[-2])]
#: Commands that need a runner; test_run.py tests them.
_NEEDS = re.compile("cluster (run|map|logs|units|submit command|.*--fetch) ")
#: Commands that need a running program; test_attach.py tests them.
BESIDE = sorted({typed for typed in HERE if typed.startswith("cluster attach ")})
PROGRAMS = sorted({typed for typed in HERE if _NEEDS.match(typed)})
#: Commands that need their own profile; test_profiles.py tests them in this order.
PROFILED = [typed for typed in HERE if re.match("cluster profile (start|stop|analyze) ", typed)]
#: Commands that need runners on two hosts; test_models.py tests them in this order.
POOLED = [typed for typed in HERE if re.match("cluster (model|data) (?!list)", typed)]
ELSEWHERE = {*PROGRAMS, *BESIDE, *PROFILED, *POOLED}
COMMANDS = sorted({typed for typed in HERE if typed.startswith("cluster ")} - ELSEWHERE)
SCRIPTS = sorted({typed for typed in HERE if typed.startswith("./deploy-cluster.sh ")})
TARGETS = sorted({typed for typed in HERE if typed.startswith("make ")})
#: Python code of the pages, keyed by page; test_run.py runs it.
SNIPPETS = {
    name: "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    for name, text in _TEXTS.items()
}
#: Code in tables that is a part of the code of some page.
SNIPPETED = {typed for typed in HERE if any(typed in snippet for snippet in SNIPPETS.values())}
_PYTHON = [typed for typed in HERE if typed.startswith(("Cluster()", "cluster.")) and typed not in SNIPPETED]
#: Commands that test_profiles.py evaluates, with a place for artifacts.
PYTHON_PROFILED = [typed for typed in _PYTHON if typed.startswith("Cluster().profile(")]
PYTHON = [typed for typed in _PYTHON if "files=" not in typed and typed not in PYTHON_PROFILED]
PYTHON_PROGRAMS = [typed for typed in _PYTHON if "files=" in typed]
#: Input of a program.
VARIABLES = ["$CLUSTER_UNIT"]
LONG = {"mode": "verify", "start_number": "1180591620717411303424", "number_count": 10**14}


def test_the_index_links_to_every_page() -> None:
    assert sorted(PAGES) == sorted(path.stem for path in (TOP / "docs/coming-from").glob("*.md"))


def test_every_row_has_two_columns_and_every_code_is_run_by_some_test() -> None:
    assert len(ROWS) > 40 and all(len(row) == 4 for row in ROWS)
    assert set(HERE) == {
        *COMMANDS,
        *PROGRAMS,
        *BESIDE,
        *PROFILED,
        *POOLED,
        *SCRIPTS,
        *TARGETS,
        *PYTHON,
        *PYTHON_PROGRAMS,
        *PYTHON_PROFILED,
        *SNIPPETED,
        *VARIABLES,
    }


@pytest.mark.parametrize("name", ["RDMA", "Raft", "NVLink", "TGI", "MIG", "Metal", "WebGL"])
def test_what_is_not_built_is_listed_with_a_reason(name: str) -> None:
    sections = re.findall(r"^## Not built\n\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    rows = [line.split("|") for text in sections for line in text.splitlines() if line.startswith("|")]
    [reason] = [row[2].strip() for row in rows if re.search(rf"\b{name}\b", row[1])]
    assert len(reason.split()) >= 8


def done(cluster: Live) -> str:
    job = cluster.submit("thread", {"replicas": 2, "seed": 1})
    cluster.result(job)
    return job


def going(cluster: Live) -> str:
    return cluster.submit("collatz", LONG)


def stopped_by(verb: str, state: str) -> Callable[[Live], str]:
    def stopped(cluster: Live) -> str:
        job = going(cluster)
        cluster.post(f"/api/jobs/{job}/{verb}")
        cluster.wait_for(job, state)
        return job

    return stopped


#: Create a job in a state in which the command is useful; `done` for all others.
STATES = {
    "cancel": going,
    "pause": going,
    "resume": stopped_by("pause", "paused"),
    "retry": stopped_by("cancel", "cancelled"),
}


@pytest.mark.parametrize("typed", COMMANDS)
def test_the_command_works(cluster: Live, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(typed)[1:]
    job = STATES.get(words[1] if words[0] == "queue" else words[0], done)(cluster) if "JOB" in words else ""
    [worker] = cluster.get("/api/workers")["workers"]
    places = {"JOB": job, "WORKER": worker["id"], "trace.json": str(tmp_path / "trace.json")}
    code, out, err = run(cluster, *(places.get(word, word) for word in words))
    assert code == 0, err
    assert out or err
    if words[0] == "drain":
        run(cluster, "drain", worker["id"], "--off")
    _end(cluster, words[0], out, job)


def _end(cluster: Live, verb: str, out: str, job: str) -> None:
    """Cancel all running jobs before the next row."""
    for left in filter(None, (job, out.strip() if verb == "submit" else "")):
        cluster.post(f"/api/jobs/{left}/cancel")


@pytest.mark.parametrize("typed", SCRIPTS)
def test_the_script_has_the_command(typed: str) -> None:
    usage = subprocess.run([TOP / "deploy-cluster.sh", "--help"], capture_output=True, text=True, check=True).stdout
    command, *options = [word for word in shlex.split(typed)[1:] if not word.isupper() and not word.isdigit()]
    assert re.search(rf"^  {command}\b", usage, re.MULTILINE)
    assert all(re.search(rf"^ +{option}\b", usage, re.MULTILINE) for option in options)


@pytest.mark.parametrize("typed", TARGETS)
def test_make_has_the_target(typed: str) -> None:
    subprocess.run(["make", "--dry-run", *shlex.split(typed)[1:]], cwd=TOP, check=True, capture_output=True)


def test_the_lines_of_python_work(cluster: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    single, batch, results, best = PYTHON
    one = {"type": "collatz", "parameters": {"start_number": 27, "number_count": 1}}
    with Cluster(cluster.url(), "") as connection:
        names = {"Cluster": lambda: connection, "cluster": connection, "jobs": [one, one]}
        assert eval(single, names)["delay"]["max"]["value"] == 111  # noqa: S307 - a line of the page
        names["ids"] = [answer["job_id"] for answer in eval(batch, names)]  # noqa: S307 - a line of the page
        assert [answer["result"]["count"] for answer in eval(results, names)] == [1, 1]  # noqa: S307 - a line of the page
        assert eval(best, names) in {row["host"] for row in connection.hosts()}  # noqa: S307 - a line of the page


def test_the_specifications_own_submit_is_accepted_as_it_stands(cluster: Live) -> None:
    [body] = re.findall(r'with `(\{"type":"thread".*?\}\})`', PAGE)
    job = cluster.post("/api/submit", json.loads(body)).json()["job_id"]
    assert cluster.job(job)["priority"] == "high"
    cluster.post(f"/api/jobs/{job}/cancel")
