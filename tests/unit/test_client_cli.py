"""Tests the output and exit codes of the `cluster` command with a fake in-memory cluster."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.unit.cluster_fake import KIND, USAGE, Fake, complete, job, problem
from threads_cluster.cli import command_index, formatting, options, running, show, tables, watching
from threads_cluster.cli import main as cli
from threads_cluster.client import api, programs
from threads_protocol.answers import fleet, hosts, jobs, services, usage

ACCEPTED = {"job_id": "j1", "status": "queued", "estimated_wait_seconds": 0.0, "notes": ["no GPU kernel"]}

EXIT_CODES = (0, 1, 2, 3, 4, 70, 130, 141)
EVENTS = {"Content-Type": "text/event-stream"}


@dataclass
class Ran:
    code: int
    out: str
    err: str

    def lines(self) -> list[Any]:
        """Return stdout parsed as JSON lines; fail for any other output."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake()
    fake.on("GET", "/api/job-types", {"kinds": [KIND]})
    fake.on("POST", "/api/submit", httpx.Response(202, json=ACCEPTED))
    fake.on("GET", "/api/jobs/j1", job("done"))
    fake.on("GET", "/api/jobs/j1/result", complete(jobs.Result, job_id="j1", partial=False, result={"sum": "9" * 30}))
    original = api.Cluster
    monkeypatch.setattr(
        api, "Cluster", lambda url: original(url or "http://cluster.test", "", transport=httpx.MockTransport(fake))
    )
    monkeypatch.setattr("threads_cluster.client.connection.time.sleep", lambda seconds: None)
    return fake


Run = Callable[..., Ran]


@pytest.fixture
def run(fake: Fake, capsys: pytest.CaptureFixture[str]) -> Run:
    def go(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return go


def sent(fake: Fake) -> Any:
    return fake.bodies("/api/submit")[-1]["parameters"]


# -- flags from the schema ------------------------------------------------------------------------------------------


def test_flags_become_exact_values(fake: Fake, run: Run) -> None:
    ran = run(
        "submit",
        "sums",
        "--start",
        "1267650600228229401496703205377",
        "--cores",
        "1,2,64",
        "--policy",
        "lifo",
        "--policies",
        "fifo,lifo",
        "--confidence",
        "0.1",
        "--density",
        "--law",
        '{"mean": 0.5, "n": 9007199254740993}',
        "--batch",
        "null",
        "--priority",
        "high",
        "--gpu-preferred",
        "--idempotency-key",
        "k",
        "--max-running",
        "3",
        "--timeout",
        "90",
        "--name",
        "All sums",
        "--tag",
        "nightly",
        "--tag",
        "v2",
    )
    assert (ran.code, ran.out) == (0, "j1\n")
    assert fake.bodies("/api/submit") == [
        {
            "type": "sums",
            "parameters": {
                "start": "1267650600228229401496703205377",
                "cores": [1, 2, 64],
                "policy": "lifo",
                "policies": ["fifo", "lifo"],
                "confidence": 0.1,
                "density": True,
                "law": {"mean": 0.5, "n": "9007199254740993"},
                "batch": None,
            },
            "idempotency_key": "k",
            "priority": "high",
            "gpu_preferred": True,
            "max_running": 3,
            "timeout_seconds": 90.0,
            "name": "All sums",
            "tags": ["nightly", "v2"],
        }
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("27", 27),
        ("1_000_000", 10**6),
        ("1e12", 10**12),
        ("2^70", str(2**70)),
        ("2**53", str(2**53)),
        ("-3", -3),
        ("2^89-1", str(2**89 - 1)),
        ("10^30+57", str(10**30 + 57)),
        ("2^3-1", 7),
        ("9007199254740993", "9007199254740993"),
        ("1e20", "1" + "0" * 20),
        ("9" * 20_000, "9" * 20_000),
    ],
)
def test_integers_stay_exact_however_they_are_written(text: str, value: object) -> None:
    assert options.integer(text) == value


@pytest.mark.parametrize("text", ["1.5", "", "abc", "1e", "0x10", "1e5.5", "nan", "2^-1"])
def test_what_is_no_integer_is_none(text: str) -> None:
    assert options.integer(text) is None


@pytest.mark.parametrize("text", ["1e100001", "9^999999999", "1" * 100_001])
def test_an_integer_too_long_to_send_is_refused_at_once(text: str) -> None:
    with pytest.raises(options.BadValue, match="digits"):
        options.integer(text)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--start", "1.5"], "'--start': must be an integer; got '1.5'"),
        (["--start", "1", "--cores", "1,x"], "'--cores': must be an integer; got 'x'"),
        (["--start", "1", "--policy", "sjf"], "'--policy': must be one of fifo, lifo; got 'sjf'"),
        (["--start", "1", "--confidence", "nan"], "'--confidence': must be a number; got 'nan'"),
        (["--start", "1", "--law", "{mean}"], "'--law': is not valid JSON"),
        (["--start", "1", "--law", "x"], "'--law': must be a JSON object"),
        (["--cores", "1"], "--start: needed"),
        (["--start", "1", "--parameters", "/nowhere.json"], "cannot read /nowhere.json"),
        (["--star", "1"], "No such option: --star"),
    ],
)
def test_bad_flags_name_the_flag_and_send_nothing(fake: Fake, run: Run, arguments: list[str], complaint: str) -> None:
    ran = run("submit", "sums", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.err
    assert fake.bodies("/api/submit") == []


def test_an_unknown_kind_is_bad_usage_and_a_near_one_is_suggested(run: Run) -> None:
    ran = run("submit", "sumz")
    assert ran.code == 2
    assert "Did you mean 'sums'?" in ran.err


def test_flags_win_over_the_file(fake: Fake, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text('{"start": 12345678901234567890, "cores": 4}')
    assert run("submit", "sums", "--parameters", str(file), "--cores", "2").code == 0
    assert sent(fake) == {"start": "12345678901234567890", "cores": 2}


def test_parameters_are_read_from_stdin(fake: Fake, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"start": 5, "priority": 3}'))
    assert run("submit", "sums", "--parameters", "-").code == 0
    assert sent(fake) == {"start": 5, "priority": 3}


def test_help_tells_types_defaults_and_bounds(run: Run) -> None:
    text = " ".join(run("submit", "sums", "--help").out.split())
    assert "--start INTEGER First number. [required; 1..2^96]" in text
    assert "--cores INTEGER[,...] Cores; several make a sweep. [default: 8; 1..64]" in text
    assert "--policy fifo|lifo [default: fifo]" in text
    assert "--confidence NUMBER Level. (ratio) [default: 0.95]" in text
    assert "--law JSON How they spread. [{law: even, mean} or {law: single}]" in text
    assert "--priority high|normal|low" in text
    assert "sums Adds numbers." in " ".join(run("submit", "--help").out.split())


def test_help_documents_the_exit_codes(run: Run) -> None:
    text = run("watch", "--help").out
    assert all(f"  {code}  " in text for code in EXIT_CODES)
    assert "Exit codes: cluster watch --help" in run("--help").out


COMMANDS_PAGE = Path(cli.__file__).parents[2] / "docs" / "commands.md"


def test_the_page_of_commands_has_the_same_exit_codes_as_the_help(run: Run) -> None:
    page = COMMANDS_PAGE.read_text()
    for code in EXIT_CODES:
        meaning = re.search(rf"^ +{code} +(.+)$", run("watch", "--help").out, re.MULTILINE)
        assert meaning, code
        assert f"| {code} | {meaning[1]} |".replace("cluster jobs | head -1", "`cluster jobs \\| head -1`") in page


def test_the_page_of_commands_has_the_same_commands_as_the_help(run: Run) -> None:
    rows = COMMANDS_PAGE.read_text().partition("| exit code |")[0].splitlines()
    cells = [row.split(" | ")[0] for row in rows if row.startswith("| `")]
    assert sorted(re.findall(r"`([\w-]+)", " ".join(cells))) == sorted(cli.commands().commands)


def test_every_command_is_in_exactly_one_group_of_the_help() -> None:
    grouped = [name for texts in command_index.GROUPS.values() for name in texts]
    assert sorted(grouped) == sorted(cli.commands().commands)


def test_the_help_names_every_command_and_fits_a_terminal_of_24_lines(run: Run) -> None:
    lines = run("--help").out.splitlines()
    assert len(lines) < 24  # The next prompt takes one line
    assert max(map(len, lines)) <= 80
    words = re.findall(r"[\w-]+", " ".join(lines[2:-3]))
    assert set(cli.commands().commands) <= set(words)


def test_a_mistyped_command_gets_suggestions_without_importing_all_commands(run: Run) -> None:
    assert "Did you mean 'jobs', 'job'?" in run("jbs").err
    code = (
        "import sys, threads_cluster.cli.main as cli; cli.commands().commands['status'];"
        "print([name for name in sys.modules if name.startswith('threads_cluster.cli.commands.')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("command", [["status"], ["jobs"], ["job", "j1"]])
def test_a_short_command_imports_only_what_it_needs(command: list[str], tmp_path: Path) -> None:
    """Importing these modules more than doubled the time of a short command."""
    slow = ("rich", "click", "pygments", "pydantic_settings", "yaml", "asyncio", "threads_cluster.client.programs")
    code = f"""
import atexit, sys
import threads_cluster.cli.main as cli
atexit.register(lambda: print([name for name in {slow} if name in sys.modules], "httpx" in sys.modules))
cli.main({command})
"""
    environment = {"CLUSTER_URL": f"http://127.0.0.1:{free_port()}", "HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (ran.returncode, ran.stdout) == (3, "[] True\n"), ran.stderr


def test_httpx_is_whole_again_for_other_code_after_a_command_imported_it() -> None:
    code = "from threads_cluster.cli import session; session.import_httpx(); import pygments, sys; sys.modules['httpx']"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_help_comes_at_once_because_nothing_heavy_is_imported() -> None:
    heavy = ("httpx", "pydantic", "pydantic_settings", "rich")
    code = f"import sys, threads_cluster.cli.main; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_ctrl_c_during_the_imports_ends_a_command_quietly(tmp_path: Path) -> None:
    interrupt = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
    (tmp_path / "typer.py").write_text(interrupt)
    environment = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    for start in (["-m", "threads_cluster"], ["-c", "from threads_cluster.entry_points import gswarm; gswarm()"]):
        ran = subprocess.run([sys.executable, *start, "status"], capture_output=True, text=True, env=environment)
        assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


# -- submitting and waiting -----------------------------------------------------------------------------------------


def test_stdout_of_submit_is_the_id_and_the_rest_is_chatter(run: Run) -> None:
    ran = run("submit", "sums", "--start", "1")
    assert ran.out == "j1\n"
    assert "note: no GPU kernel" in ran.err
    assert "cluster watch j1" in ran.err


def test_submit_with_json_prints_the_answer_only(run: Run) -> None:
    assert run("submit", "sums", "--start", "1", "--json").lines() == [ACCEPTED]


def test_wait_with_json_is_one_line_with_the_result_inside(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/jobs/j1", job("running"), job("done"))
    ran = run("submit", "sums", "--start", "1", "--wait", "--json")
    assert ran.code == 0
    assert ran.lines() == [job("done") | {"result": {"sum": "9" * 30}}]
    assert ran.err == "note: no GPU kernel\n"
    assert "\x1b" not in ran.out


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_job_that_ends_badly_is_exit_code_1(fake: Fake, run: Run, state: str) -> None:
    fake.on("GET", "/api/jobs/j1", job(state))
    ran = run("submit", "sums", "--start", "1", "--wait", "--json")
    assert (ran.code, ran.lines()) == (1, [job(state)])
    ran = run("submit", "sums", "--start", "1", "--wait")
    assert (ran.code, ran.out) == (1, "")
    assert f"j1 {state} in 500 ms" in ran.err
    assert run("watch", "j1").code == 1


def test_waiting_prints_progress_lines_and_the_result(fake: Fake, run: Run) -> None:
    waiting = job("queued", waiting_because="2 jobs are ahead")
    further = job("running", progress=0.5)  # too early for a separate line
    fake.on("GET", "/api/jobs/j1", waiting, job("running"), further, job("done"))
    ran = run("submit", "sums", "--start", "1", "--wait")
    assert ran.out == f"sum  {'9' * 30}\n"
    assert ran.err.splitlines()[1:] == [
        "job j1",
        "j1 queued: 2 jobs are ahead",
        "j1 running  25.0 %  1.23 M/s  1 min 15 s left",
        "j1 done in 500 ms, 1 k units at 2 k/s",
    ]
    looks = [one for one in fake.asked if one.url.path.endswith("/jobs/j1")]
    assert [one.url.params["wait_seconds"] for one in looks] == ["4", "4", "4", "4"]


def test_waiting_prints_a_summary_and_json_prints_everything(fake: Fake, run: Run) -> None:
    bins = {"scheme": "log", "bins": [[number, 1] for number in range(99)]}
    cells = [{"cell": number, "mean": 1.5, "histogram": bins} for number in range(4)]
    small = {"count": 3, "cells": cells}
    whole = {"parameters": {"seed": 1}, "count": 3, "cells": cells, **{f"name{number}": number for number in range(99)}}
    fake.on("GET", "/api/jobs/j1", job("done"))
    fake.on("GET", "/api/jobs/j1/result", complete(jobs.Result, job_id="j1", partial=False, result=whole))
    ran = run("submit", "sums", "--start", "1", "--wait")
    assert len(ran.out.splitlines()) == 40 and ran.out.startswith("count   3\n")
    assert "seed" not in ran.out and "log" not in ran.out
    assert ran.err.endswith("Print the complete result with: cluster result j1\n")
    assert run("submit", "sums", "--start", "1", "--wait", "--json").lines()[0]["result"] == whole
    fake.on("GET", "/api/jobs/j1/result", complete(jobs.Result, job_id="j1", partial=False, result=small))
    assert run("submit", "sums", "--start", "1", "--wait").out.splitlines()[-1].split() == ["3", "1.5"]


def test_watch_without_a_terminal_says_something_at_once(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/jobs/j1", job("running"), job("running"), job("done"))
    assert run("watch", "j1").err.startswith("j1 running  25.0 %")
    assert [one.url.params["wait_seconds"] for one in fake.asked] == ["0.5", "4", "4"]


@pytest.mark.parametrize(
    "command", [["submit", "sums", "--start", "1", "--wait"], ["watch", "j1"], ["watch", "j1", "--json"]]
)
def test_ctrl_c_leaves_the_job_running_and_says_so(fake: Fake, run: Run, command: list[str]) -> None:
    def interrupt(request: httpx.Request) -> dict[str, Any]:
        raise KeyboardInterrupt

    fake.on("GET", "/api/jobs/j1", interrupt)
    fake.on("GET", "/api/jobs/j1/events", interrupt)
    ran = run(*command)
    assert (ran.code, ran.out) == (130, "")
    assert "the job keeps running" in ran.err
    assert "cluster watch j1" in ran.err
    assert "cluster cancel j1" in ran.err
    assert not [one for one in fake.asked if one.url.path.endswith("cancel")]


def test_ctrl_c_says_that_something_goes_on_only_where_something_was_submitted(fake: Fake, run: Run) -> None:
    def interrupt(request: httpx.Request) -> dict[str, Any]:
        raise KeyboardInterrupt

    fake.on("GET", "/api/schedules", interrupt)
    fake.on("POST", "/api/submit", interrupt)
    submitting = run("submit", "sums", "--start", "1")
    assert (submitting.code, submitting.err) == (130, "interrupted; submitted jobs keep running\n")
    reading = run("schedule", "list")
    assert (reading.code, reading.err) == (130, "interrupted\n"), "nothing of the command before is left"


@pytest.mark.parametrize("command", [["watch", "j1"], ["watch", "j1", "--json"]])
def test_watching_begins_while_redis_is_away(fake: Fake, run: Run, command: list[str]) -> None:
    away = problem(503, "A part of the cluster cannot be reached", "redis cannot be reached")
    fake.on("GET", "/api/jobs/j1", away, away, job("done"))
    done = httpx.Response(200, content=b'data: {"state":"done"}\n\n', headers=EVENTS)
    fake.on("GET", "/api/jobs/j1/events", away, away, done)
    assert run(*command).code == 0


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with watching.bar() as report:
        report(job("running"))
        report(job("done"))


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "field", "word"),
    [
        (["workflow", "status", "x"], "workflow_id", "WORKFLOW"),
        (["webhook", "test", "x"], "url", "URL"),
        (["schedule", "show", "x"], "name", "NAME"),
        (["jobs", "--state", "x"], "state", "--state"),
    ],
)
def test_a_refusal_names_what_was_typed(fake: Fake, run: Run, arguments: list[str], field: str, word: str) -> None:
    method = "POST" if "test" in arguments else "GET"
    path = {"workflow_id": "/api/workflows/x", "url": "/api/webhooks/test", "name": "/api/schedules/x"}
    answer = problem(422, "The request is not valid", f"{field}: is wrong", field=field)
    fake.on(method, path.get(field, "/api/jobs"), answer)
    ran = run(*arguments)
    assert (ran.code, ran.err) == (2, f"error: {word}: is wrong\n")


def test_a_refusal_speaks_of_flags(fake: Fake, run: Run) -> None:
    detail = "parameters.start: must be in 1..9; got 10"
    fake.on("POST", "/api/submit", problem(422, "The request is not valid", detail, field="parameters.start"))
    ran = run("submit", "sums", "--start", "10")
    assert (ran.code, ran.out, ran.err) == (2, "", "error: --start: must be in 1..9; got 10\n")


def test_a_missing_token_is_said_in_the_words_of_the_command(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/status", problem(401, "A token is needed", "send Authorization: Bearer TOKEN"))
    ran = run("status")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "error: this cluster requires a token",
        "next: set CLUSTER_TOKEN, or run: cluster login",
    ]


def test_help_of_submit_needs_no_token(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/job-types", problem(401, "A token is needed", "send Authorization: Bearer TOKEN"))
    assert "collatz" in run("submit", "--help").out
    ran = run("submit", "collatz", "--start-number", "1", "--number-count", "1")
    assert (ran.code, "CLUSTER_TOKEN" in ran.err) == (2, True)


def test_a_usage_error_is_two_lines(run: Run) -> None:
    ran = run("job")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: Missing argument 'JOB'\nnext: see cluster job --help\n"


def test_no_cluster_is_exit_code_3_with_what_to_do(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/status", httpx.ConnectError("[Errno 111] Connection refused"))
    ran = run("status", "--json")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("error: no cluster answers at http://cluster.test (connection refused)\nnext: start a")
    fake.on("GET", "/api/status", httpx.ReadTimeout("timed out"))
    ran = run("status")
    assert ran.code == 3 and "takes too long to answer\nnext: try again" in ran.err, "one that hangs is not missing"


def test_without_a_cluster_help_and_mistakes_come_from_this_checkout(
    fake: Fake, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pydantic import BaseModel, Field

    class Parameters(BaseModel):
        start: int = Field(ge=1, description="First number.")

    class Definition:
        summary, example, parameters = "Adds numbers.", {"start": 1}, Parameters

    monkeypatch.setattr("jobs.kinds.registry.names", lambda: ("sums",))
    monkeypatch.setattr("jobs.kinds.registry.definition", lambda kind: Definition)
    fake.on("GET", "/api/job-types", httpx.ConnectError("refused"))
    assert "First number.  [required; at least 1]" in run("submit", "sums", "--help").out
    ran = run("submit", "sums", "--start", "0")
    assert (ran.code, "--start: " in ran.err) == (2, True)
    assert run("submit", "sums", "--start", "1").code == 3
    assert fake.bodies("/api/submit") == []


# -- looking --------------------------------------------------------------------------------------------------------


def test_lists_are_one_object_a_line(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/jobs", {"jobs": [job("running"), job("done")], "cursor": None})
    assert [one["state"] for one in run("jobs", "--json").lines()] == ["running", "done"]
    fake.on("GET", "/api/workers", {"workers": [complete(fleet.Worker, id=name) for name in ("a", "b")]})
    assert len(run("workers", "--json").lines()) == 2
    assert run("kinds", "--json").lines() == [KIND]
    fake.on("GET", "/api/jobs", {"jobs": [], "cursor": None})
    assert run("jobs", "--json").out == ""


def test_a_search_prints_how_many_jobs_match(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/jobs", {"jobs": [job("failed")] * 2, "cursor": None, "matching": 5, "total": 5420})
    ran = run("jobs", "--search", "sums", "--tag", "nightly", "--state", "failed", "--since", "7d", "--limit", "2")
    assert ran.err.startswith("5 matching of 5,420 jobs\nShowing the newest 2 of 5.")
    query = fake.asked[-1].url.params
    assert (query["search"], query["tag"], query["state"]) == ("sums", "nightly", "failed") and "since" in query
    assert "such as 30m" in run("jobs", "--since", "yesterday").err


def test_watch_with_json_prints_events(fake: Fake, run: Run) -> None:
    text = b'id: 1\ndata: {"state":"running"}\n\nid: 2\ndata: {"state":"done"}\n\n'
    fake.on("GET", "/api/jobs/j1/events", httpx.Response(200, content=text, headers=EVENTS))
    ran = run("watch", "j1", "--json")
    assert (ran.code, ran.lines()) == (0, [{"state": "running"}, {"state": "done"}])


def test_empty_clusters_say_what_to_do_next(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/jobs", {"jobs": [], "cursor": None})
    assert "cluster submit collatz" in run("jobs").err
    assert "List all with: cluster jobs" in run("jobs", "--state", "failed").err
    fake.on("GET", "/api/workers", {"workers": []})
    assert "./deploy-cluster.sh local" in run("workers").err


def test_status_for_people(fake: Fake, run: Run) -> None:
    found = {
        "version": "1.2",
        "cluster_size": 3,
        "workers": {"live": 2, "ready": 2, "cpu": {"busy": 2}, "gpu": {}, "runner": {}},
        "lanes": 8,
        "jobs": {"running": 1, "queued": 2, "done": 0},
        "queues": {"cpu.normal": 2},
        "oldest_wait_seconds": 61.0,
        "units_per_second": {"collatz": 2.5e9},
        "desired_workers": {"cpu": 4, "gpu": 0},
        "compiling": ["collatz", "thread"],
    }
    fake.on("GET", "/api/status", found)
    assert run("status").out.splitlines() == [
        "cluster  http://cluster.test, version 1.2",
        "workers  2 (2 cpu, 0 gpu, 0 runner, 3 desired), lanes: 8, compiling: collatz and thread",
        "desired  4 cpu, 0 gpu",
        "jobs     1 running, 2 queued",
        "waiting  cpu.normal 2; the longest for 1 min 1 s",
        "speed    collatz 2.5 G/s",
    ]
    assert run("status", "--json").lines() == [found]
    assert run("version").out == "1.2\n"


@pytest.mark.parametrize(
    ("seconds", "start"), [(0.2, "immediately"), (5.0, "in about 5.0 s"), (None, "at an unknown time")]
)
def test_a_submission_and_the_job_name_the_same_start(fake: Fake, run: Run, seconds: float | None, start: str) -> None:
    fake.on("POST", "/api/submit", httpx.Response(202, json=ACCEPTED | {"estimated_wait_seconds": seconds}))
    assert f"queued, starts {start}; watch it" in run("submit", "sums", "--start", "1").err
    fake.on("GET", "/api/jobs/j1", job("queued", estimated_wait_seconds=seconds))
    assert ["starts", *start.split()] in [line.split() for line in run("job", "j1").out.splitlines()]


def test_a_job_prints_no_empty_parameters_and_the_start_of_long_ones(fake: Fake, run: Run) -> None:
    items = [f"{number}.txt" for number in range(500)]
    fake.on("GET", "/api/jobs/j1", job("running", parameters={"items": items, "env": {}, "outputs": []}))
    printed = run("job", "j1").out.partition("parameters\n")[2].splitlines()
    assert [line.split()[0] for line in printed] == ["items"]
    assert len(printed[0]) < 250 and printed[0].endswith(f"... ({len(json.dumps(items))} characters)")
    assert json.loads(run("job", "j1", "--json").out)["parameters"]["items"] == items


def test_one_job_and_the_workers_for_people(fake: Fake, run: Run) -> None:
    used = USAGE | {"workers": {"desk": {"device": "cpu", "units": 250, "leases": 2, "seconds": 3.0}}}
    fake.on("GET", "/api/jobs/j1", job("running", usage=used))
    text = run("job", "j1").out
    assert "running  25.0 %  1.23 M/s  1 min 15 s left" in text
    assert "start  1267650600228229401496703205376" in text
    assert "desk    cpu       250       2  3.0 s" in text
    node = complete(
        fleet.Worker,
        id="desk",
        device="cpu",
        state="busy",
        lanes=2,
        job="j1",
        host="h",
        cpu_ratio=0.5,
        seen_seconds_ago=0.4,
        memory_used_bytes=3 * 2**30,
        draining=True,
        live=True,
    )
    fake.on("GET", "/api/workers", {"workers": [node]})
    assert run("workers").out.splitlines()[1] == "desk    cpu     draining      2  j1   50.0 %  3 GiB   h     now"
    refuses = complete(fleet.Worker, id="odd", live=True, refused="thread: units 0..9 of {}: wrong cells")
    fake.on("GET", "/api/workers", {"workers": [node, refuses, refuses | {"id": "gone", "live": False}]})
    assert run("workers").out.splitlines()[4:] == ["odd does not compute thread: units 0..9 of {}: wrong cells"]
    compiles = complete(fleet.Worker, id="new", live=True, compiling=["collatz", "thread"])
    fake.on("GET", "/api/workers", {"workers": [compiles, compiles | {"id": "gone", "live": False}]})
    assert run("workers").out.splitlines()[3:] == [
        "new is compiling the kernels of collatz and thread; until then, it takes none of their jobs"
    ]
    full = complete(fleet.Worker, id="runner-1", live=True, cordoned="its disk is full")
    fake.on("GET", "/api/workers", {"workers": [full, full | {"id": "gone", "live": False}]})
    assert run("workers").out.splitlines()[3:] == ["runner-1 accepts no work: its disk is full"]


def test_several_jobs_are_steered_and_the_first_refusal_counts(fake: Fake, run: Run) -> None:
    fake.on("POST", "/api/jobs/j1/cancel", job("cancelled"))
    fake.on(
        "POST", "/api/jobs/j2/cancel", problem(409, "The state does not allow this", "cannot cancel a job that is done")
    )
    ran = run("cancel", "j2", "j1")
    assert (ran.code, ran.out) == (2, "j1 cancelled\n")
    assert ran.err == "acting on http://cluster.test\nerror: cannot cancel a job that is done\n"
    fake.on("DELETE", "/api/jobs/j1", httpx.Response(204))
    assert run("delete", "j1", "--json").lines() == [{"job_id": "j1", "state": "deleted"}]


def test_drain_and_back(fake: Fake, run: Run) -> None:
    fake.on("POST", "/api/workers/desk/drain", {"id": "desk", "draining": True})
    assert "cluster drain desk --off" in run("drain", "desk").out
    run("drain", "desk", "--off")
    assert fake.bodies("/api/workers/desk/drain") == [{"on": True}, {"on": False}]


def test_a_question_and_a_mark_of_any_kind(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/jobs/j1/first.json", {"sum": 3, "rows": [{"n": 1}, {"n": 2}]})
    assert run("ask", "j1", "first", "units=4", "a=b=c").lines() == [{"sum": 3, "rows": [{"n": 1}, {"n": 2}]}]
    assert dict(fake.asked[-1].url.params) == {"units": "4", "a": "b=c"}
    assert run("ask", "j1", "first", "--csv").out == "n\n1\n2\n"
    ran = run("ask", "j1", "first", "units")
    assert ran.code == 2 and "must have the form NAME=VALUE; got 'units'" in ran.err
    proved = complete(jobs.Mark, mark="summed", origin=1, up_to=9, ranges=[{"first": 1, "last": 9}])
    fake.on("GET", "/api/kinds/sums/marks/summed", proved)
    assert run("mark", "sums", "summed").out == "summed  1..9\n"
    assert run("mark", "sums", "summed", "--json").lines() == [proved]


def test_an_answer_goes_into_a_file(fake: Fake, run: Run, tmp_path: Path) -> None:
    fake.on("GET", "/api/jobs/j1/trace.json", {"traceEvents": []})
    ran = run("ask", "j1", "trace", "--output", str(tmp_path / "a.json"))
    assert (ran.out, json.loads((tmp_path / "a.json").read_text())) == ("", {"traceEvents": []})


# -- results --------------------------------------------------------------------------------------------------------

RESULT = {
    "count": 1000,
    "delay": {"sum": "12345678901234567890123", "mean": 1.25, "histogram": [[n, n * n] for n in range(30)]},
    "records": {"delay": [{"n": 27, "value": 111}], "path": []},
    "metrics": {"speed": {"mean": 1.5, "ci": [1, 2]}, "time": {"mean": 2.0, "ci": [1, 3]}},
    "cells": [{"cores": 8, "metrics": {"a": {"mean": 1.0}}}, {"cores": 16, "metrics": {"a": {"mean": 2.0}}}],
    "huge": "7" * 1000,
}


@pytest.fixture
def with_result(fake: Fake) -> None:
    answer = {"job_id": "j1", "type": "sums", "partial": True, "units": 1000, "total": 4000, "result": RESULT}
    fake.on("GET", "/api/jobs/j1/result", answer)


def test_a_trace_is_written_to_a_file_also_when_it_takes_long(run: Run, fake: Fake, tmp_path: Path) -> None:
    trace = {"traceEvents": [], "otherData": {"replica": 3}}
    fake.on("GET", "/api/jobs/j1/trace.json", {"job_id": "q1", "status": "running"})
    fake.on("GET", "/api/jobs/q1", job("done"))
    fake.on("GET", "/api/jobs/q1/result", complete(jobs.Result, job_id="q1", result=trace))
    ran = run("result", "j1", "--trace", str(tmp_path / "t.json"), "--replica", "3")
    assert fake.asked[0].url.params["replica"] == "3"
    assert json.loads((tmp_path / "t.json").read_text()) == trace
    assert ran.out == "" and "perfetto" in ran.err


@pytest.mark.usefixtures("with_result")
def test_a_result_for_people_is_short_and_says_how_to_get_all(run: Run) -> None:
    ran = run("result", "j1", "--partial")
    assert ran.err == "partial: 1000 of 4000 units\n"
    assert "sum   12345678901234567890123" in ran.out
    assert "... 20 more: cluster result j1 --csv --table delay.histogram" in ran.out
    assert "(1000 digits)" in ran.out
    assert "speed   1.5  1 2" in ran.out
    assert "\n     n  value\n    27    111\n" in ran.out
    assert not [line for line in ran.out.splitlines() if line != line.rstrip()]


@pytest.mark.usefixtures("with_result")
def test_csv_prints_one_table_and_names_the_others(run: Run) -> None:
    ran = run("result", "j1", "--csv")
    assert ran.out.splitlines()[:3] == ["delay,count", "0,0", "1,1"]
    assert len(ran.out.splitlines()) == 31
    assert ran.err == "Printed delay.histogram. Other tables for --table: records.delay, cells\n"
    assert run("result", "j1", "--table", "cells").out == "cores,metrics.a.mean\n8,1.0\n16,2.0\n"
    assert run("result", "j1", "--csv", "--table", "nope").code == 2


def test_a_result_without_tables_is_names_and_values(run: Run) -> None:
    assert run("result", "j1", "--csv").out == f"name,value\nsum,{'9' * 30}\n"


def test_tables_are_found_by_shape() -> None:
    found = {table.name: table for table in tables.find({"a": [1, 2], "b": list(range(9)), "c": {"bins": [[1, 2]]}})}
    assert {name: table.columns for name, table in found.items()} == {"b": ("index", "b"), "c.bins": ("index", "count")}


# -- figures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0.0004, "0 ms"),
        (0.35, "350 ms"),
        (12.34, "12.3 s"),
        (59.97, "1 min"),
        (245, "4 min 5 s"),
        (12000, "3 h 20 min"),
        (180000, "2 d 2 h"),
        (4e9, "127 years"),
        (1e20, "3.17T years"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert formatting.duration(seconds) == text


def test_rates_sizes_and_percents() -> None:
    assert [formatting.rate(value) for value in (None, 0.5, 999.6, 1234, 2.5e13)] == [
        "",
        "0.5/s",
        "1 k/s",
        "1.23 k/s",
        "25 T/s",
    ]
    assert [formatting.size(value) for value in (10, 2048, 3 * 2**30)] == ["10 B", "2 KiB", "3 GiB"]
    assert [formatting.percent(value) for value in (0, 1e-9, 0.99999, 1)] == ["0 %", "0.1 %", "99.9 %", "100 %"]


def test_people_see_floats_rounded_and_integers_whole() -> None:
    assert show.format_value(0.1 + 0.2) == "0.3"
    assert show.format_value(2**80) == str(2**80)
    assert show.format_value([1, "x", None, True]) == "1 x  yes"


@pytest.mark.parametrize(("status", "way"), [(403, "or name the host in its ALLOWED_HOSTS"), (415, "Content-Type")])
def test_a_refusal_at_the_edge_says_the_way_out(fake: Fake, run: Run, status: int, way: str) -> None:
    fake.on("GET", "/api/status", problem(status, "The request is not allowed", f"not so: {way}", field="Host"))
    ran = run("status")
    assert (ran.code, ran.out, ran.err) == (2, "", f"error: not so: {way}\n")


def test_a_body_says_that_it_is_json_and_comes_from_no_page(fake: Fake, run: Run) -> None:
    run("submit", "sums", "--start", "3", "--json")
    [sent] = [one for one in fake.asked if one.url.path == "/api/submit"]
    assert sent.headers["content-type"] == "application/json" and "origin" not in sent.headers


# -- audit and usage ------------------------------------------------------------------------------------------------


def chained(*bodies: str) -> list[str]:
    """Return lines of an audit log with these bodies."""
    lines, digest = [], "0" * 40
    for number, body in enumerate(bodies, 1):
        text = f'{{"seq":{number},{body}}}'
        digest = hashlib.sha1((digest + text).encode()).hexdigest()
        lines.append(f'{text[:-1]},"hash":"{digest}"}}')
    return lines


SUBMITTED = '"t":1790000000000,"tenant":"default","token":"","action":"submit","subject":"j1","outcome":"queued"'
DENIED = '"t":1790000000000,"tenant":"","token":"","action":"denied","subject":"::1","outcome":"forbidden","count":7'


def part(lines: list[str]) -> dict[str, Any]:
    position = {"seq": 0, "hash": "0" * 40}
    return {"lines": lines, "head": position, "dropped": position, "exported": 0}


def test_audit_lists_who_changed_what(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/audit", part(chained(SUBMITTED, DENIED)))
    ran = run("audit")
    assert ran.code == 0
    assert [line.split() for line in ran.out.splitlines()[1:]] == [
        ["1", "2026-09-21T14:13:20Z", "default", "-", "submit", "j1", "queued"],
        ["2", "2026-09-21T14:13:20Z", "-", "-", "denied", "::1", "forbidden", "7", "times"],
    ]
    assert [entry["seq"] for entry in run("audit", "--json").lines()] == [1, 2]


def test_audit_verifies_the_cluster_and_a_file(fake: Fake, run: Run, tmp_path: Path) -> None:
    lines = chained(SUBMITTED, DENIED, SUBMITTED)
    fake.on("GET", "/api/audit", part(lines))
    ran = run("audit", "--verify")
    head = json.loads(lines[-1])["hash"]
    assert (ran.code, ran.out) == (0, f"entries 1 to 3 are unchanged\nhead {head}\n")
    file = tmp_path / "audit.jsonl"
    file.write_text("\n".join(lines) + "\n")
    assert run("audit", str(file), "--json").lines() == [{"entries": [1, 3], "head": head}]
    first = json.loads(lines[0])["hash"]
    assert run("audit", str(file), "--head", first).code == 0
    assert run("audit", str(tmp_path / "none")).code == 2
    file.write_text("\n".join(lines))
    ran = run("audit", str(file))
    assert (
        ran.out.startswith("entries 1 to 2 are unchanged\n") and "line 3 is incomplete and was not verified" in ran.err
    )
    file.write_text("")
    assert run("audit", str(file)).out == "no entries\n"


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda lines: [lines[0], lines[2]], "line 2: expected entry 2, got entry 3"),
        (lambda lines: [lines[0], lines[1].replace("::1", "::2"), lines[2]], "line 2: entry 2 or the previous entry"),
        (lambda lines: [lines[1], lines[0], lines[2]], "line 1: expected entry 1, got entry 2"),
        (lambda lines: [lines[0], "text", lines[2]], "line 2: this is not a line of an audit log"),
    ],
)
def test_audit_names_the_first_line_that_is_not_what_was_written(
    run: Run, tmp_path: Path, damage: Callable[[list[str]], list[str]], complaint: str
) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text("\n".join(damage(chained(SUBMITTED, DENIED, SUBMITTED))) + "\n")
    ran = run("audit", str(file))
    assert (ran.code, ran.out) == (1, "")
    assert complaint in ran.err


def test_audit_misses_the_end_that_a_kept_head_names(run: Run, tmp_path: Path) -> None:
    lines = chained(SUBMITTED, DENIED, SUBMITTED)
    file = tmp_path / "audit.jsonl"
    file.write_text("\n".join(lines[:2]) + "\n")
    ran = run("audit", str(file), "--head", json.loads(lines[2])["hash"])
    assert ran.code == 1 and "no line has the hash" in ran.err


def test_the_head_of_a_file_is_no_alarm_about_the_cluster(fake: Fake, run: Run, tmp_path: Path) -> None:
    lines = chained(SUBMITTED, DENIED, SUBMITTED)
    ran = run("audit", "--verify", "--head", "0" * 64)
    assert ran.code == 2 and "verify the file with: cluster audit FILE" in ran.err and not fake.asked
    before = json.dumps({"after": 1, "hash": json.loads(lines[0])["hash"]}, separators=(",", ":"))
    fake.on("GET", "/api/audit", part([before, *lines[1:]]))
    ran = run("audit", "--verify", "--head", "0" * 40)
    assert ran.code == 1 and "or the line is older than entry 2, the first entry here" in ran.err


def test_usage_shows_a_line_a_tenant_and_day(fake: Fake, run: Run) -> None:
    day = complete(
        usage.TenantUsage,
        tenant="physics",
        day="2026-11-22",
        lane_seconds={"cpu": 1.5, "gpu": 0.5},
        units={"sums": "9" * 20},
        jobs={"sums": 3},
        device_seconds=0.25,
    )
    fake.on("GET", "/api/usage", {"usage": [day]})
    ran = run("usage", "--tenant", "physics")
    assert ran.out.splitlines()[1].split() == ["2026-11-22", "physics", "2", "0.25", "-", "3", f"sums={'9' * 20}"]
    assert run("usage", "--json").lines() == [day]


def test_labels_that_a_tenant_requires_are_sent_where_they_are_named(fake: Fake, run: Run) -> None:
    row = {
        "tenant": "a",
        "weight": 2,
        "max_lanes": None,
        "max_jobs": None,
        "lanes": 0,
        "jobs": 0,
        "backlog": 0,
        "max_units": {},
        "units_today": {},
        "max_gpu_seconds": None,
        "gpu_seconds_today": 0.0,
        "max_stored_bytes": None,
        "stored_bytes": 0,
        "requires": ["eu", "trusted"],
    }
    fake.on("GET", "/api/tenants/a", row)
    fake.on("PUT", "/api/tenants/a", row)
    ran = run("tenant", "set", "a", "--requires", "trusted, eu")
    assert json.loads(fake.asked[-1].content)["requires"] == ["eu", "trusted"] and "eu,trusted" in ran.out
    run("tenant", "set", "a", "--requires", "none")
    assert json.loads(fake.asked[-1].content)["requires"] == []
    run("tenant", "set", "a", "--max-jobs", "3")
    assert "requires" not in json.loads(fake.asked[-1].content)
    assert run("tenant", "set", "a", "--requires", "a,,b").code == 2


def test_caps_of_a_tenant_are_sent_as_numbers_and_what_is_not_named_stays(fake: Fake, run: Run) -> None:
    caps = {"max_units": {"sums": 10}, "max_gpu_seconds": 60, "max_stored_bytes": None}
    row = {
        "tenant": "a",
        "weight": 2,
        "max_lanes": 8,
        "max_jobs": None,
        "lanes": 1,
        "jobs": 2,
        "backlog": 0,
        **caps,
        "units_today": {"sums": 4},
        "gpu_seconds_today": 1.5,
        "stored_bytes": 0,
        "requires": [],
    }
    fake.on("GET", "/api/tenants/a", row)

    def sent() -> list[Any]:
        return [json.loads(one.content) for one in fake.asked if one.method == "PUT"]

    fake.on("PUT", "/api/tenants/a", row)
    ran = run("tenant", "set", "a", "--units", "sums=1e9,others=5", "--stored-bytes", "1.5GB")
    assert ran.out.splitlines()[1].split() == ["a", "2", "1", "8", "2", "-", "0", "sums=4/10", "1.5/60", "-", "-"]
    assert sent() == [
        {
            "weight": 2,
            "max_lanes": 8,
            "max_jobs": None,
            "max_units": {"sums": 10**9, "others": 5},
            "max_gpu_seconds": 60,
            "max_stored_bytes": 1_500_000_000,
        }
    ]
    run("tenant", "set", "a", "--max-units", "none", "--max-gpu-seconds", "0")
    assert sent()[1] == {"weight": 2, "max_lanes": 8, "max_jobs": None}
    assert (
        run("tenant", "set", "a", "--units", "sums").code
        == run("tenant", "set", "a", "--stored-bytes", "1 QB").code
        == 2
    )


# -- secrets --------------------------------------------------------------------------------------------------------

SECRET = {
    "tenant": "default",
    "name": "KEY",
    "changed": "2026-01-02T03:04:05.000Z",
    "key": "9f0c51ab",
    "readable": True,
}


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Write bytes to stdin."""
    return lambda content: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_secret_is_read_from_stdin_or_a_file_and_never_printed(
    fake: Fake, run: Run, stdin: Callable[[bytes], None], tmp_path: Path
) -> None:
    fake.on("PUT", "/api/secrets/KEY", SECRET)
    file = tmp_path / "value"
    file.write_bytes(b"hunter2\n")
    for content, flags, value in (
        (b"hunter2\n", (), "hunter2"),
        (b"hunter2\r\n", (), "hunter2"),
        (b"a\nhunter2\n\n", (), "a\nhunter2\n"),
        ("hunter2é".encode(), (), "hunter2é"),
        (b"", ("--from-file", str(file)), "hunter2\n"),
    ):
        stdin(content)
        ran = run("secret", "set", "KEY", *flags)
        assert (ran.code, ran.out) == (0, "KEY set for tenant default\n") and "hunter2" not in ran.err
        assert json.loads(fake.asked[-1].content) == {"value": value}
    stdin(b"hunter2")
    assert run("secret", "set", "KEY", "--tenant", "red", "--json").lines() == [SECRET]
    assert fake.asked[-1].url.params["tenant"] == "red"


def test_a_value_among_the_arguments_is_refused_and_not_repeated(fake: Fake, run: Run) -> None:
    for words in (["hunter2"], ["hunter2", "more"]):
        ran = run("secret", "set", "KEY", *words)
        assert ran.code == 2 and "a value cannot be an argument" in ran.err and "hunter2" not in ran.err + ran.out
    assert fake.asked == [] and "VALUE" not in run("secret", "set", "--help").out


def test_a_value_that_cannot_be_one_is_refused_before_it_is_sent(
    fake: Fake, run: Run, stdin: Callable[[bytes], None], tmp_path: Path
) -> None:
    for content, part in ((b"\xff hunter2", "base64"), (b"hunter2" * 10_000, "over 65536 bytes"), (b"\n", "no value")):
        stdin(content)
        ran = run("secret", "set", "KEY")
        assert ran.code == 2 and part in ran.err and "hunter2" not in ran.err
    assert run("secret", "set", "KEY", "--from-file", str(tmp_path / "none")).code == 2
    assert fake.asked == []


def test_a_value_in_the_place_of_a_name_is_not_sent(fake: Fake, run: Run) -> None:
    for word in ("KEY=VALUE", "1KEY", "K" * 65):
        ran = run("secret", "set", word)
        assert ran.code == 2 and "a name must have 1 to 64 letters" in ran.err and "VALUE" not in ran.err
    assert fake.asked == []


def test_secrets_are_listed_deleted_and_rotated(fake: Fake, run: Run) -> None:
    lost = SECRET | {"name": "LOST", "readable": False}
    fake.on("GET", "/api/secrets", {"secrets": [], "key": None}, {"secrets": [SECRET, lost], "key": "9f0c51ab"})
    assert run("secret", "list").err == "No secrets. Set one with: cluster secret set NAME\n"
    ran = run("secret", "list")
    assert [line.split()[1] for line in ran.out.splitlines()] == ["name", "KEY", "LOST"]
    assert "No key in SECRETS_KEY decrypts LOST" in ran.err
    assert run("secret", "list", "--json").lines() == [SECRET, lost]
    fake.on("DELETE", "/api/secrets/KEY", httpx.Response(204))
    assert run("secret", "delete", "KEY").out == "KEY deleted\n"
    fake.on("POST", "/api/rotate-secrets", {"key": "9f0c51ab", "rotated": 3, "unreadable": ["red/LOST"]})
    ran = run("secret", "rotate")
    assert ran.out == "3 secrets are now encrypted with key 9f0c51ab\n" and "red/LOST" in ran.err


# -- schedules and webhooks -----------------------------------------------------------------------------------------

SCHEDULE = {
    "name": "sweep",
    "id": "a1",
    "tenant": "default",
    "type": "sums",
    "every_seconds": 3600,
    "cron": None,
    "timezone": "UTC",
    "overlap": False,
    "catch_up": "last",
    "state": "active",
    "created": "2026-01-02T03:04:05.000Z",
    "next_run": "2026-01-02T04:04:05.000Z",
    "last_run": None,
    "last_job_id": None,
    "last_workflow_id": None,
    "last_workflow_state": None,
    "last_outcome": None,
    "submitted": 0,
    "skipped": 0,
    "missed": 0,
    "failed": 0,
    "next_runs": ["2026-01-02T04:04:05.000Z"],
    "job": {"type": "sums"},
}


@pytest.mark.parametrize(
    ("seconds", "said"), [(10, "every 10 s"), (59, "every 59 s"), (60, "every 1 min"), (90, "every 1 min 30 s")]
)
def test_a_rhythm_is_said_in_whole_seconds(seconds: int, said: str) -> None:
    assert show.schedule_text(SCHEDULE | {"every_seconds": seconds}) == said


def test_a_schedule_is_added_in_the_words_of_submit_and_nothing_is_submitted(fake: Fake, run: Run) -> None:
    fake.on("POST", "/api/schedules", httpx.Response(201, json=SCHEDULE))
    words = ("submit", "sums", "--start", "2^70", "--priority", "high", "--notify", "https://x/")
    ran = run("schedule", "add", "sweep", "--every", "1h", "--", *words)
    assert ran.code == 0 and "every 1 h" in ran.out and "2026-01-02 04:04:05 UTC" in ran.out, ran
    body = json.loads(fake.asked[-1].content)
    assert (body["name"], body["every_seconds"], body["overlap"]) == ("sweep", 3600, False)
    job = body["job"]
    assert (job["type"], job["priority"], job["notify"]) == ("sums", "high", "https://x/")
    assert job["parameters"]["start"] == str(2**70) and "idempotency_key" not in job
    assert fake.bodies("/api/submit") == []


def test_a_workflow_is_scheduled_and_what_is_wrong_with_it_is_said_by_line(
    fake: Fake, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text("name: nightly\nactions: []\n")
    row = {key: value for key, value in SCHEDULE.items() if key != "job"} | {
        "type": "workflow",
        "workflow": "name: nightly",
        "last_workflow_id": "0123456789ab",
        "last_workflow_state": "running",
        "last_outcome": "submitted",
    }
    problem = {"line": 2, "column": 1, "action": "", "field": "actions", "detail": "must be a list"}
    fake.on("POST", "/api/schedules", httpx.Response(201, json=row), httpx.Response(422, json={"problems": [problem]}))
    words = ("schedule", "add", "nightly", "--cron", "0 3 * * *", "--", "workflow", "submit", str(file))
    assert run(*words).code == 0
    body = json.loads(fake.asked[-1].content)
    assert (body["workflow"], body["cron"]) == ("name: nightly\nactions: []\n", "0 3 * * *") and "job" not in body
    ran = run(*words)
    assert ran.code != 0 and f"{file}:2:1: actions: must be a list" in ran.err, ran
    assert fake.bodies("/api/workflows") == []
    file.write_bytes(b"name: \xff")
    assert "UTF-8: byte 6 is 0xff" in run(*words).err
    fake.on("GET", "/api/schedules", {"schedules": [row]})
    assert "submitted 0123456789ab (running)" in run("schedule", "list").out
    fake.on("GET", "/api/schedules/nightly", row)
    shown = run("schedule", "show", "nightly").out
    assert "0123456789ab (running)" in shown and shown.endswith("\nname: nightly\n")
    started = {"name": "nightly", "job_id": None, "workflow_id": "0123456789ab"}
    fake.on("POST", "/api/schedules/nightly/run", httpx.Response(202, json=started))
    assert run("schedule", "run-now", "nightly").out == "0123456789ab\n"
    fake.on("POST", "/api/schedules/nightly/run", httpx.Response(202, json=started))
    assert run("schedule", "run-now", "nightly", "--json").lines() == [
        {"name": "nightly", "workflow_id": "0123456789ab"}
    ]


def test_words_that_schedule_nothing_are_refused_before_anything_is_sent(fake: Fake, run: Run) -> None:
    for words, why in (
        (("--every", "1h", "--", "jobs"), "must start with submit"),
        (("--every", "soon", "--", "submit"), "15m"),
        (("--", "submit", "sums"), "give either"),
        (("--every", "1h", "--cron", "x", "--", "submit"), "give either"),
        (("--every", "1h", "--timezone", "UTC", "--", "submit"), "--cron"),
        (("--every", "1h", "--", "submit", "sums", "--first", "1", "--count", "2", "--wait"), "does not apply"),
        (("--every", "1h", "--", "submit", "sums", "--first", "x"), "--first"),
    ):
        ran = run("schedule", "add", "sweep", *words)
        assert ran.code == 2 and why in ran.err, ran
    assert fake.bodies("/api/schedules") == [] == fake.bodies("/api/submit")


def test_a_schedule_is_shown_in_its_timezone(fake: Fake, run: Run) -> None:
    berlin = {**SCHEDULE, "every_seconds": None, "cron": "0 5 * * *", "timezone": "Europe/Berlin"}
    fake.on("GET", "/api/schedules/sweep", berlin, {**berlin, "timezone": "Mars/Base"})
    assert "05:04:05 CET" in run("schedule", "show", "sweep").out
    assert "04:04:05 UTC" in run("schedule", "show", "sweep").out
    fake.on("GET", "/api/schedules", {"schedules": [berlin]})
    assert "0 5 * * * Europe/Berlin" in run("schedule", "list").out
    fake.on(
        "POST",
        "/api/schedules/sweep/run",
        httpx.Response(202, json={"name": "sweep", "job_id": "s-a1-9n", "workflow_id": None}),
    )
    assert run("schedule", "run-now", "sweep").out == "s-a1-9n\n"


DELIVERY = {
    "id": "msg_1",
    "tenant": "default",
    "job_id": "j1",
    "workflow_id": None,
    "type": "job.done",
    "url": "https://x/...",
    "state": "dead",
    "created": "2026-01-02T03:04:05.000Z",
    "ended": None,
    "attempts": 8,
    "next_attempt": None,
    "last_outcome": "the receiver answered 500",
}


def test_deliveries_are_listed_and_a_receiver_that_fails_is_an_exit_code(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/webhooks", {"deliveries": [DELIVERY], "counts": {"pending": 0, "delivered": 0, "dead": 1}})
    ran = run("webhook", "list")
    assert "the receiver answered 500" in ran.out and "cluster webhook dead" in ran.err
    assert run("webhook", "dead", "--json").lines() == [DELIVERY]
    assert fake.asked[-1].url.params["state"] == "dead"
    fine: dict[str, Any] = {"delivered": True, "status": 204, "error": None, "seconds": 0.1}
    for outcome, code, said in (
        (fine, 0, "204"),
        ({**fine, "delivered": False, "status": None, "error": "no connection"}, 1, "no connection"),
    ):
        fake.on("POST", "/api/webhooks/test", outcome)
        ran = run("webhook", "test", "https://x/")
        assert ran.code == code and said in ran.out
    fake.on("GET", "/api/webhooks/key", {"tenant": "default", "key": "whsec_x"})
    assert run("webhook", "key").out == "whsec_x\n"


def test_jobs_are_a_queue_of_tasks_to_who_calls_them_so(fake: Fake, run: Run) -> None:
    task = {**job("done"), "task_id": "j1"}
    fake.on("GET", "/api/v1/queue", {"tasks": {"queued": 2, "done": 1}})
    fake.on("GET", "/api/v1/queue/history", {"tasks": [task]})
    fake.on("GET", "/api/jobs", {"jobs": [job("running")], "cursor": None})
    fake.on("POST", "/api/jobs/j1/cancel", job("cancelled"))
    assert run("queue", "status", "--json").lines() == [{"tasks": {"queued": 2, "done": 1}}]
    assert "queued  2" in run("queue", "status").out
    assert run("queue", "history", "--limit", "5", "--json").lines() == [task]
    assert fake.asked[-1].url.params["limit"] == "5"
    assert "j1" in run("queue", "tasks", "--status", "running").out
    assert fake.asked[-1].url.params["state"] == "running"
    assert run("queue", "cancel", "j1").out == "j1 cancelled\n"


# -- services ---------------------------------------------------------------------------------------------------------

SERVICE = {
    "name": "chat",
    "tenant": "default",
    "engine": "llamacpp",
    "model": "tiny",
    "state": "starting",
    "replicas": 1,
    "ready": 0,
    "requests": 0,
    "created": "2026-01-02T03:04:05.000Z",
    "failures": 0,
    "next_start": None,
    "last_failure": None,
    "last_minute": complete(services.LastMinute),
    "page": False,
    "running": [
        {
            "job_id": "v-a-1",
            "state": "starting",
            "because": "/health does not answer",
            "worker": "runner-1",
            "host": "h",
            "generation": 1,
            "since": "2026-01-02T03:04:05.000Z",
            "requests": 2,
            "devices": None,
            "memory_bytes": None,
        },
    ],
}
READY = SERVICE | {"state": "ready", "ready": 1}


def test_a_link_to_the_page_of_a_service_is_printed_alone(fake: Fake, run: Run) -> None:
    link = {"url": "http://dask-0123456789ab.localhost:3000/.cluster/open?ticket=x", "seconds": 600}
    fake.on("POST", "/api/services/dask/open", httpx.Response(200, json=link))
    ran = run("service", "open", "dask")
    assert (ran.code, ran.out) == (0, f"{link['url']}\n") and "10 minutes" in ran.err
    assert json.loads(run("service", "open", "dask", "--json").out) == link
    plain = {"url": "http://dask-0123456789ab.localhost:3000/status", "seconds": None}
    fake.on("POST", "/api/services/dask/open", httpx.Response(200, json=plain))
    ran = run("service", "open", "dask")
    assert (ran.code, ran.out, ran.err) == (0, f"{plain['url']}\n", "")


def test_workers_of_dask_are_served_by_their_name_and_it_is_said_how_they_are_asked(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/engines", ENGINES)
    fake.on("POST", "/api/services", httpx.Response(201, json=SERVICE | {"name": "dask", "engine": "dask"}))
    ran = run("serve", "dask", "--replicas", "4", "-p", "threads=2")
    assert ran.code == 0 and 'Cluster().dask(name="dask")' in ran.err and "/v1" not in ran.err
    assert fake.bodies("/api/services") == [
        {"name": "dask", "engine": "dask", "replicas": 4, "parameters": {"threads": 2}, "requirements": {}}
    ]
    assert "remove it" in run("serve", "--engine", "dask", "tiny.gguf").err


def test_a_model_is_served_in_the_words_of_the_command_and_waited_for(fake: Fake, run: Run) -> None:
    asked = {"memory": {"words": "1 MiB weights; it is enough", "weights_bytes": 1 << 20}}
    fake.on("POST", "/api/services", httpx.Response(201, json=SERVICE | {"asked": asked}))
    fake.on("GET", "/api/services/tiny-q4", SERVICE | {"name": "tiny-q4"}, READY | {"name": "tiny-q4"})
    fake.on("GET", "/api/services/chat", SERVICE, READY)
    ran = run("serve", "Tiny_Q4", "--context", "2048", "-p", "threads=2", "-p", "file=a=b", "--gpus", "1", "--wait")
    assert (ran.code, ran.out) == (0, "chat ready, 1 of 1 ready\n")
    assert "starting, 0 of 1 ready: /health does not answer" in ran.err and "/v1" in ran.err
    assert "memory of a replica: 1 MiB weights; it is enough" in ran.err
    assert fake.bodies("/api/services") == [
        {
            "name": "tiny-q4",
            "model": "Tiny_Q4",
            "parameters": {"context": 2048, "threads": 2, "file": "a=b"},
            "requirements": {"gpus": 1},
        }
    ]


def test_a_service_that_sleeps_or_scales_is_asked_for_and_shown(fake: Fake, run: Run) -> None:
    fake.on("POST", "/api/services", httpx.Response(201, json=SERVICE))
    assert run("serve", "tiny", "--idle", "900", "--autoscale", "1:4", "--target", "2").code == 0
    [body] = fake.bodies("/api/services")
    assert (body["idle_seconds"], body["autoscale"]) == (900, {"min": 1, "max": 4, "target": 2})
    for words in (("--autoscale", "4"), ("--autoscale", "a:b"), ("--target", "2")):
        assert run("serve", "tiny", *words).code == 2
    fake.on("GET", "/api/services", {"services": [SERVICE | {"state": "asleep", "replicas": 0, "running": []}]})
    assert "the next request starts a replica" in run("services").out
    fake.on("POST", "/api/services/chat/scale", READY | {"replicas": 0})
    assert run("service", "scale", "chat", "0").out == "chat ready, 1 ready, 0 desired\n"


def test_a_program_is_served_behind_two_dashes(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/engines", ENGINES)
    fake.on("POST", "/api/services", httpx.Response(201, json=SERVICE))
    words = ["python3", "-m", "http.server", "{port}"]
    assert run("serve", "--engine", "http", "--name", "web", "-p", "health=/", "--", *words).code == 0
    [body] = fake.bodies("/api/services")
    assert body["parameters"] == {"command": words, "health": "/"} and "model" not in body


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "must be one artifact, or one file"),
        (("a", "b"), "must be one artifact"),
        (("./nosuch.gguf",), "file ./nosuch.gguf does not exist; download a model with: cluster model download"),
        (("./nosuch",), "file ./nosuch does not exist; list artifacts with: cluster artifact list"),
        (("--engine", "http"), "needs a program after --"),
        (("tiny", "-p", "threads"), "must be NAME=VALUE"),
        (("tiny", "--files", "x"), "applies only to --engine http"),
        (("___",), "no name can be derived"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_sent(
    fake: Fake, run: Run, words: tuple[str, ...], why: str
) -> None:
    ran = run("serve", *words)
    assert ran.code == 2 and why in ran.err and fake.asked == []


@pytest.mark.parametrize("begins", [b"", b"GGU", b"version https://git-lfs.github.com/spec/v1\n", b"<!doctype html>"])
def test_a_file_that_is_no_model_is_refused_before_it_is_sent(
    fake: Fake, run: Run, tmp_path: Path, begins: bytes
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(begins)
    ran = run("serve", str(file))
    assert ran.code == 2 and f"not a GGUF model: it starts with {begins[:4]!r} instead of" in ran.err
    assert fake.asked == []


def test_a_file_that_may_not_be_read_is_named_and_is_no_matter_of_the_output(
    fake: Fake, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(Path, "open", closed)
    ran = run("serve", str(file))
    assert (ran.code, fake.asked) == (2, []) and f"{file} cannot be read: Permission denied" in ran.err
    monkeypatch.setattr(Path, "exists", closed)
    ran = run("serve", str(file))
    assert (ran.code, fake.asked) == (2, []) and f"cannot open {file}: Permission denied" in ran.err


def test_a_folder_that_is_gone_is_not_sent(fake: Fake, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(Path, "cwd", gone)
    ran = run("run", "--", "true")
    assert (ran.code, fake.asked) == (125, [])
    assert "does not exist any more" in ran.err and "--files DIR" in ran.err


ENGINES = {
    "engines": [
        {
            "engine": "http",
            "summary": "Any program.",
            "routes": "openai",
            "large": False,
            "packages": "",
            "parameters": {},
        },
        {
            "engine": "transformers",
            "summary": "Weights.",
            "routes": "openai",
            "large": True,
            "packages": "torch==1\n",
            "parameters": {},
        },
    ]
}


def test_gigabytes_of_packages_are_asked_for_before_anything_is_sent(fake: Fake, run: Run, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    fake.on("GET", "/api/engines", ENGINES)
    fake.on("POST", "/api/services", httpx.Response(201, json=SERVICE))
    for words in ((str(tmp_path), "--name", "m"), ("m", "--engine", "transformers")):
        ran = run("serve", *words)
        assert ran.code == 2 and "needs gigabytes of packages" in ran.err, ran.err
        assert "--install" in ran.err and "cluster engine install transformers" in ran.err
    assert {each.url.path for each in fake.asked} == {"/api/engines"}
    assert run("serve", "m", "--engine", "transformers", "--install").code == 0
    assert run("serve", "--engine", "http", "--", "x").code == 0
    fake.on("GET", "/api/engines", httpx.Response(403, json={"detail": "needs the scope read"}))
    assert run("serve", "m", "--engine", "transformers").code == 0, "a token that only runs programs lists no engines"
    fake.on("GET", "/api/engines", httpx.Response(404, json={"detail": "Not Found"}))
    assert run("serve", "m", "--engine", "transformers").code == 2


def test_engines_are_listed_and_one_without_packages_needs_no_installation(fake: Fake, run: Run) -> None:
    fake.on("GET", "/api/engines", ENGINES)
    assert [line.split()[0] for line in run("engine", "list").out.splitlines()] == ["engine", "http", "transformers"]
    ran = run("engine", "install", "nosuch")
    assert ran.code == 2 and "the engines are http, transformers" in ran.err
    assert "needs no packages" in run("engine", "install", "http").err


@pytest.mark.parametrize("code", [0, 3])
def test_an_engine_is_installed_by_a_program_with_the_list_that_its_replicas_have(
    fake: Fake, run: Run, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    sent: list[tuple[Any, str]] = []

    def submit(_self: object, program: Any, *, files: str) -> dict[str, str]:
        sent.append((program, Path(files, program.python).read_text()))
        return {"job_id": "j"}

    monkeypatch.setattr(programs.Programs, "submit", submit)
    monkeypatch.setattr(running, "run", lambda _session, job: ({"job_id": job}, code))
    fake.on("GET", "/api/engines", ENGINES)
    assert run("engine", "install", "transformers", "--host", "gpu1").code == code
    [(program, packages)] = sent
    assert packages == "torch==1\n" and program.host == "gpu1"


def test_a_port_has_no_effect_and_a_note(fake: Fake, run: Run) -> None:
    fake.on("POST", "/api/services", httpx.Response(201, json=SERVICE))
    ran = run("serve", "chat", "--port", "8080", "--host", "h")
    assert ran.code == 0 and "port" not in fake.bodies("/api/services")[0]
    assert "note: port 8080 is not used: send requests to /v1 of the cluster, with the service's name" in ran.err


def test_a_model_of_the_hub_is_served_after_its_download(run: Run) -> None:
    ran = run("serve", "Qwen/Qwen3-0.6B")
    download = "cluster model download qwen3-0.6b --source hf://Qwen/Qwen3-0.6B --wait"
    assert ran.code == 2 and f"run: {download}, and then: cluster serve qwen3-0.6b" in ran.err


def test_who_waits_for_replicas_that_die_hears_why(fake: Fake, run: Run) -> None:
    dead = SERVICE | {"state": "waiting", "running": [], "failures": 3, "last_failure": "exit code 3"}
    fake.on("POST", "/api/services", httpx.Response(201, json=SERVICE))
    fake.on("GET", "/api/services/chat", dead)
    ran = run("serve", "chat", "--wait")
    assert ran.code == 1 and "3 replicas of chat failed; last error: exit code 3" in ran.err
    assert "cluster service logs chat" in ran.err


def test_services_are_listed_with_their_replicas_and_changed(fake: Fake, run: Run) -> None:
    gone = SERVICE | {
        "name": "gone",
        "state": "waiting",
        "running": [],
        "last_failure": "exit code 3",
        "next_start": "2026-01-02T03:04:09.000Z",
    }
    fake.on("GET", "/api/services", {"services": [SERVICE, gone]})
    lines = run("services").out.splitlines()
    assert lines[1].split() == [
        "chat",
        "llamacpp",
        "v-a-1",
        "starting",
        "runner-1",
        "2",
        "/health",
        *["does", "not", "answer"],
    ]
    assert "the last replica died: exit code 3; the next replica starts at 2026" in lines[2]
    assert lines[2].endswith("; see: cluster service logs gone")
    fake.on("GET", "/api/services/gone", gone)
    assert "exit code 3; see: cluster service logs gone\n" in run("service", "show", "gone").out
    fake.on("POST", "/api/services/chat/scale", READY | {"replicas": 3})
    assert run("service", "scale", "chat", "3").out == "chat ready, 1 of 3 ready\n"
    assert fake.bodies("/api/services/chat/scale") == [{"replicas": 3}]
    for verb in ("restart", "stop"):
        fake.on("POST", f"/api/services/chat/{verb}", READY)
        assert run("service", verb, "chat").code == 0
    fake.on("DELETE", "/api/services/chat", httpx.Response(204))
    assert run("service", "delete", "chat").out == "chat deleted\n"
    fake.on("GET", "/api/services", {"services": []})
    assert "cluster serve model.gguf" in run("services").err


# -- models -----------------------------------------------------------------------------------------------------------

MODEL = {
    "model_name": "qwen",
    "type": "llm",
    "source": "https://x/q.gguf",
    "status": "ready",
    "bytes": 5,
    "locations": ["disk", "node1:disk"],
    "weights": ["q.gguf"],
    "services": ["chat"],
    "artifact_id": "0" * 64,
    "created": "2026-01-02T03:04:05.000Z",
}


def test_models_are_listed_page_by_page_shown_and_deleted(fake: Fake, run: Run) -> None:
    other = MODEL | {"model_name": "zeta", "status": "registered", "weights": [], "locations": [], "services": []}
    fake.on("GET", "/api/v1/models", {"models": [MODEL], "cursor": "qwen"}, {"models": [other]})
    listed = run("model", "list", "--json")
    assert [row["model_name"] for row in listed.lines()] == ["qwen", "zeta"], listed.err
    fake.on("GET", "/api/v1/models", {"models": [MODEL, other]})
    shown = run("model", "list").out
    assert "q.gguf" in shown and "disk node1:disk" in shown and "registered" in shown
    assert "zeta" not in run("model", "list", "--location", "node1:disk").out
    assert "qwen" in run("model", "list", "--location", "disk").out
    fake.on("GET", "/api/hosts/node1", complete(hosts.HostDetail))
    fake.on("GET", "/api/hosts/node7", problem(404, "Not Found", "host node7 does not exist; the hosts are a"))
    for place in ("node1:gpu0", "gpu0", "dram"):
        empty = run("model", "list", "--location", place)
        expected = f"No models at {place}. List all models with: cluster model list\n"
        assert (empty.code, empty.out, empty.err) == (0, "", expected)
    unknown = run("model", "list", "--location", "node7:disk")
    assert unknown.code == 2 and "host node7 does not exist; the hosts are a" in unknown.err
    assert "must be disk, or a location such as HOST:disk" in run("model", "list", "--location", "moon").err
    fake.on("GET", "/api/v1/models/qwen", MODEL)
    ran = run("model", "info", "qwen")
    assert "https://x/q.gguf" in ran.out and "cluster serve qwen" in ran.err
    fake.on("DELETE", "/api/v1/models/qwen", httpx.Response(204))
    assert run("model", "delete", "qwen").out == "qwen deleted\n"
    assert run("model", "delete", "qwen", "--device", "node1:disk").code == 0
    assert dict(fake.asked[-1].url.params) == {"device": "node1:disk"}


def test_a_model_is_registered_downloaded_copied_and_moved_by_tasks(fake: Fake, run: Run) -> None:
    fake.on("POST", "/api/v1/models", httpx.Response(201, json=MODEL | {"status": "registered"}))
    assert run("model", "register", "qwen", "--source", "hf://o/r").out == "qwen registered\n"
    assert fake.bodies("/api/v1/models") == [{"model_name": "qwen", "type": "llm", "source": "hf://o/r"}]
    for verb in ("download", "copy", "move"):
        fake.on("POST", f"/api/v1/models/qwen/{verb}", httpx.Response(202, json={"task_id": "w1"}))
    ran = run("model", "download", "qwen", "--source", "https://x/q.gguf", "--sha256", "a" * 64, "--host", "h")
    assert (ran.code, ran.out) == (0, "w1\n") and "cluster serve qwen" in ran.err
    body = {"source": "https://x/q.gguf", "target_device": "h:disk", "sha256": "a" * 64}
    assert fake.bodies("/api/v1/models/qwen/download") == [body]
    assert run("model", "copy", "qwen", "--to", "dram", "--node", "h").code == 0
    assert fake.bodies("/api/v1/models/qwen/copy") == [{"source_device": "disk", "target_device": "h:dram"}]
    assert run("model", "move", "qwen", "--from", "a:disk", "--to", "b:disk", "--keep-source").code == 0
    moved = {"source_device": "a:disk", "target_device": "b:disk", "keep_source": True}
    assert fake.bodies("/api/v1/models/qwen/move") == [moved]
    assert run("model", "copy", "../x", "--to", "h:disk").code == 2


def test_a_device_without_a_host_is_on_this_machine_if_it_has_a_runner(
    fake: Fake, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.on("POST", "/api/v1/models/qwen/copy", httpx.Response(202, json={"task_id": "w1"}))
    monkeypatch.setattr("jobs.settings.default_host", lambda: "here")

    def copy(*workers: tuple[str, str, bool]) -> Any:
        rows = [complete(fleet.Worker, device=device, host=host, live=live) for host, device, live in workers]
        fake.on("GET", "/api/workers", {"workers": rows})
        assert run("model", "copy", "qwen", "--to", "dram").code == 0
        return fake.bodies("/api/v1/models/qwen/copy")[-1]["target_device"]

    assert copy(("far", "runner", True), ("here", "runner", True)) == "here:dram"
    assert copy(("far", "runner", True), ("here", "cpu", True)) == "dram", "the cluster knows the only one"
    assert copy(("here", "runner", False)) == "dram"


CHUNK = {
    "chunk_id": "chunk-0123456789ab",
    "device": "node1:dram",
    "locations": ["disk", "node1:dram"],
    "bytes": 7,
    "files": 1,
    "references": 2,
    "artifact_id": "1" * 64,
    "created": "2026-01-02T03:04:05.000Z",
}


def test_chunks_of_data_are_created_listed_moved_and_deleted(fake: Fake, run: Run) -> None:
    name = CHUNK["chunk_id"]
    fake.on("POST", "/api/v1/data", httpx.Response(202, json={"chunk_id": name, "task_id": "w1"}))
    made = run("data", "create", "--source", "s3://b/k", "--device", "dram", "--node", "h")
    assert (made.out, "cluster workflow status w1 --wait" in made.err) == (f"{name}\n", True)
    assert fake.bodies("/api/v1/data") == [{"source": "s3://b/k", "device": "h:dram"}]
    fake.on("GET", "/api/v1/data", {"chunks": [CHUNK]})
    assert "disk node1:dram" in run("data", "list").out
    assert "chunk-" in run("data", "list", "--device", "dram").out
    assert run("data", "list", "--device", "gpu0").err == ("No data at gpu0. List all data with: cluster data list\n")
    fake.on("GET", f"/api/v1/data/{name}", CHUNK)
    assert "node1:dram" in run("data", "info", str(name)).out
    for verb in ("move", "transfer"):
        fake.on("POST", f"/api/v1/data/{name}/{verb}", httpx.Response(202, json={"task_id": "w2"}))
        assert run("data", verb, str(name), "--to", "disk", "--node", "x").out == "w2\n"
        assert fake.bodies(f"/api/v1/data/{name}/{verb}") == [{"target_device": "x:disk"}]
    fake.on("DELETE", f"/api/v1/data/{name}", httpx.Response(204))
    assert run("data", "delete", str(name)).out == f"{name} deleted\n"
    assert run("data", "info", "results").code == 2
