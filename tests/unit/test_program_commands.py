"""Tests `cluster run`, `map`, `logs`, `units` and `submit command` with a fake in-memory cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.artifact_bench import sha_of
from tests.unit.cluster_fake import complete, problem
from tests.unit.programs_fake import END, EVENTS, FOLLOW, UNITS, Ran, event, page, unit
from threads_cluster import errors, terminal
from threads_cluster.cli import main as cli
from threads_cluster.cli import running
from threads_cluster.client import api, output, programs, trees
from threads_protocol.answers import jobs


@dataclass
class Shown:
    code: int
    out: bytes
    err: bytes


Run = Callable[..., Shown]
#: Request body of `run` without a folder.
BARE = ("run", "--no-files", "--")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Ran:
    fake = Ran()
    original, transport = api.Cluster, httpx.MockTransport(fake)
    monkeypatch.setattr(
        api, "Cluster", lambda url: original(url or "http://cluster.test", "", transport=transport, wait_patience=0.2)
    )
    monkeypatch.setattr("threads_cluster.client.connection.time.sleep", lambda seconds: None)
    return fake


@pytest.fixture
def run(fake: Ran, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    def go(*arguments: str) -> Shown:
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        out, err = capfdbinary.readouterr()
        return Shown(int(ended.value.code or 0), out, err)

    return go


def sent(fake: Ran) -> Any:
    return fake.bodies("/api/submit")[-1]["parameters"]


# -- run: output -------------------------------------------------------------------------------------------------------


def test_live_output_is_passed_on_byte_for_byte_by_stream(fake: Ran, run: Run) -> None:
    fake.live(event("stdout", 0, b"one\x00\xff\r\n"), event("stderr", 7, b"two"), event("stdout", 10, b"\x1b[1m"), END)
    ran = run(*BARE, "true")
    assert (ran.code, ran.out, ran.err) == (0, b"one\x00\xff\r\n\x1b[1m", b"two")


def test_what_did_not_come_live_is_read_from_the_log(fake: Ran, run: Run) -> None:
    fake.live(event("stdout", 0, b"out1"), event("stderr", 4, b"err1"), END)
    artifact = fake.keeps(logs__0=b"out1err1out2err2", logs__0__streams=b"")
    artifact = fake.keeps(**{"logs__0": b"out1err1out2err2", "logs__0.streams": b"[[4, 4], [12, 4]]"})
    fake.units(unit(artifact=artifact))
    ran = run(*BARE, "true")
    assert (ran.out, ran.err) == (b"out1out2", b"err1err2")


def test_a_program_that_ended_before_anybody_followed_is_shown_whole(fake: Ran, run: Run) -> None:
    fake.units(unit(artifact=fake.keeps(logs__0=b"quick\n")))
    assert run(*BARE, "true").out == b"quick\n"


def test_a_gap_is_never_jumped_over_in_a_pipe(fake: Ran, run: Run) -> None:
    fake.live(event("stdout", 0, b"0123"), 'event: dropped\ndata: {"bytes": 4}\n\n', event("stdout", 8, b"89"), END)
    fake.units(unit(artifact=fake.keeps(logs__0=b"0123456789")))
    ran = run(*BARE, "true")
    assert ran.out == b"0123456789"
    assert b"some output was skipped" in ran.err


def test_a_broken_connection_goes_on_where_it_stopped(fake: Ran, run: Run) -> None:
    fake.on(
        "GET",
        FOLLOW,
        httpx.Response(200, headers=EVENTS, text=event("stdout", 0, b"abc")),
        httpx.ReadError("cut"),
        httpx.Response(200, headers=EVENTS, text=event("stdout", 1, b"bcde") + END),
    )
    assert run(*BARE, "true").out == b"abcde"
    assert [one.headers.get("Last-Event-ID") for one in fake.asked if one.url.path == FOLLOW] == [None, "1-0", "1-0"]


def test_a_unit_that_ended_while_the_connection_was_away_has_nothing_more(fake: Ran, run: Run) -> None:
    first = httpx.Response(200, headers=EVENTS, text=event("stdout", 0, b"abc"))
    fake.on("GET", FOLLOW, first, httpx.Response(204))
    fake.units(unit(artifact=fake.keeps(logs__0=b"abcdef")))
    ran = run(*BARE, "true")
    assert (ran.code, ran.out, ran.err) == (0, b"abcdef", b"")


def test_without_a_place_among_the_followers_all_comes_at_the_end(fake: Ran, run: Run) -> None:
    fake.on("GET", FOLLOW, problem(429, "OverLimit", "256 units are followed"))
    fake.units(unit(artifact=fake.keeps(logs__0=b"abcdef")))
    ran = run(*BARE, "true")
    assert (ran.code, ran.out) == (0, b"abcdef")


def test_a_program_that_started_again_is_shown_from_its_beginning(fake: Ran, run: Run) -> None:
    fake.live(event("stdout", 0, b"first", run="aa"), event("stdout", 0, b"second", run="bb"), END)
    fake.units(unit(artifact=fake.keeps(logs__0=b"second!")))
    ran = run(*BARE, "true")
    assert ran.out == b"firstsecond!"
    assert b"restarted" in ran.err


def test_output_of_a_start_that_nobody_saw_is_no_continuation(fake: Ran, run: Run) -> None:
    fake.live(event("stdout", 0, b"first"), END)
    fake.units(unit(artifact=fake.keeps(logs__0=b"second one")))
    ran = run(*BARE, "true")
    assert ran.out == b"firstsecond one"
    assert b"an earlier attempt" in ran.err


def test_output_of_attempts_that_nobody_saw_is_missing_and_said(fake: Ran, run: Run) -> None:
    fake.units(unit(artifact=fake.keeps(logs__0=b"third"), attempts=3))
    ran = run(*BARE, "true")
    assert ran.out == b"third"
    assert b"this is the output of attempt 3" in ran.err


def test_of_a_log_that_was_cut_only_what_is_missing_is_not_shown(fake: Ran, run: Run) -> None:
    first, last = b"f" * output.FIRST_BYTES, b"l" * (8 << 20)
    log = first + b"\n[12345 bytes were dropped here]\n" + last
    fake.live(event("stdout", 0, first[:100]), END)
    fake.units(unit(artifact=fake.keeps(logs__0=log)))
    ran = run(*BARE, "true")
    assert ran.out == first + last
    assert b"12.1 KiB in the middle were not stored" in ran.err


@pytest.mark.parametrize(
    ("place", "parts", "lost"),
    [
        (0, [(0, 1 << 20), ((1 << 20) + 30, 9 << 20)], 500),
        (1 << 20, [((1 << 20) + 30, 9 << 20)], 500),
        ((1 << 20) + 200, [((1 << 20) + 30, 9 << 20)], 300),
        ((1 << 20) + 600, [((1 << 20) + 130, 9 << 20)], 0),
    ],
)
def test_places_in_a_log_that_was_cut(place: int, parts: list[tuple[int, int]], lost: int) -> None:
    cut = output.Cut(dropped=500, line=30)
    assert list(output.ranges(place, 9 << 20, cut)) == parts
    assert output.lost(place, cut) == lost


def test_a_line_that_a_program_wrote_itself_cuts_nothing() -> None:
    assert output.cut_of(b"\n[5 bytes were dropped here]\n", 2 << 20) is None


# -- run: how it ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "code", "said"),
    [
        (unit("dead", exit=3), 3, b""),
        (unit("dead", exit=130), 130, b""),
        (unit("dead", exit=-9), 137, b""),
        (unit("dead", exit=143, reason="timeout", error="over 5 s"), 124, b"ended by the cluster: over 5 s"),
        (unit("dead", exit=137, reason="memory", error="over 64 MiB"), 137, b"over 64 MiB"),
        (unit("dead", exit=127, reason="not started", error="no such file: no such"), 127, b"-- no such"),
        (unit("dead", exit=None, reason="lost", error="the runner was lost"), 125, b"the runner was lost"),
        (unit("dead", exit=0, reason="disk", error="disk full: x"), 125, b"cluster: disk full: x"),
    ],
)
def test_the_exit_code_is_that_of_the_program(fake: Ran, run: Run, row: dict[str, Any], code: int, said: bytes) -> None:
    fake.on("GET", "/api/jobs/j1", fake.job("failed"))
    fake.units(row)
    ran = run(*BARE, "no such")
    assert (ran.code, ran.out) == (code, b"") and said in ran.err
    assert said or not ran.err


def test_a_job_that_somebody_cancelled_is_exit_code_125(fake: Ran, run: Run) -> None:
    fake.on("GET", "/api/jobs/j1", fake.job("cancelled"))
    fake.units(unit("waiting"))
    ran = run(*BARE, "true")
    assert (ran.code, ran.err) == (125, b"cluster: job j1 was cancelled\n")


@pytest.mark.parametrize("arguments", [("--gpus", "x", "--", "true"), ("--no-files",), ("--files", "/none", "--", "a")])
def test_what_is_not_the_programs_fault_is_exit_code_125(fake: Ran, run: Run, arguments: tuple[str, ...]) -> None:
    ran = run("run", *arguments)
    assert (ran.code, ran.out) == (125, b"") and ran.err.startswith(b"error: ")
    fake.on("POST", "/api/submit", problem(403, "Forbidden", "it needs the scope run", next="cluster token create"))
    ran = run(*BARE, "true")
    assert (ran.code, ran.err) == (125, b"error: it needs the scope run\nnext: cluster token create\n")


def test_a_refusal_names_the_option(fake: Ran, run: Run) -> None:
    detail = "parameters.requirements.memory_mib: must be at least 1; got 0"
    fake.on("POST", "/api/submit", problem(422, "no", detail, field="parameters.requirements.memory_mib"))
    assert b"error: --memory: must be at least 1; got 0" in run("run", "--no-files", "--memory", "0", "--", "true").err


def test_a_unit_that_runs_does_not_wait_whatever_its_job_does(fake: Ran, run: Run) -> None:
    running = fake.job("running", waiting_because="its last leases run")
    fake.on("GET", "/api/jobs/j1", running, running, fake.job("done"))
    fake.on("GET", UNITS, page(unit("running")), page(unit("done")))
    ran = run(*BARE, "true")
    assert (ran.code, ran.err) == (0, b"")


def test_a_submission_that_no_runner_fits_is_not_said_to_start_at_once(fake: Ran, run: Run) -> None:
    because = "no runner has label ssd; runner-1 has none"
    fake.on("POST", "/api/submit", {"job_id": "j1", "status": "queued", "estimated_wait_seconds": None, "notes": []})
    fake.on("GET", "/api/jobs/j1", fake.job("queued", waiting_because=because))
    ran = run("submit", "command", "--count", "2", "--label", "ssd", "--", "true")
    assert ran.code == 0
    assert (
        f"queued, starts at an unknown time; watch it with: cluster watch j1\nj1 is waiting: {because}\n".encode()
        in ran.err
    )


def test_without_a_runner_it_says_so_at_once_and_waits(fake: Ran, run: Run) -> None:
    because = "no runner lives; start one with ./deploy-cluster.sh local"
    fake.on("GET", UNITS, page(unit("waiting")), page(unit("done")))
    waiting = fake.job("queued", waiting_because=because)
    fake.on("GET", "/api/jobs/j1", waiting, waiting, fake.job("done"))
    ran = run(*BARE, "true")
    assert (ran.code, ran.err) == (0, f"cluster: j1 is waiting: {because}\n".encode())
    fake.on("GET", "/api/jobs/j1", fake.job("queued", waiting_because=because))
    ran = run("run", "--no-files", "--no-wait", "--", "true")
    assert (ran.code, ran.out) == (0, b"j1\n")
    assert because.encode() in ran.err and b"cluster logs j1 -f" in ran.err


def test_new_files_that_were_not_kept_are_noted(fake: Ran, run: Run) -> None:
    found: dict[str, Any] = {"count": 5, "names": ["a.txt", "b.txt", "out/c.txt"]}
    text = b"5 new files were not kept (a.txt, b.txt, out/c.txt, ...); declare outputs with -o\n"
    seconds = dict.fromkeys(("sum", "least", "most", "median"), 0.1)
    result = {"units": 1, "seconds": seconds, "attempts": 1, "workers": {"runner-1": 1}, "new_files": found}
    fake.on("GET", "/api/jobs/j1/result", complete(jobs.Result, job_id="j1", partial=False, result=result))
    fake.on("GET", "/api/jobs/j1", fake.job("done"))
    assert run(*BARE, "true").err == b"cluster: " + text
    assert run("watch", "j1").err.count(text) == 1
    ran = run("submit", "command", "--wait", "--", "true")
    assert ran.err.count(b"note: " + text) == 1 and b"new_files" not in ran.out
    assert run("run", "--no-files", "--quiet", "--", "true").err == b""
    assert run("run", "--no-files", "-o", "*.csv", "--", "true").err.count(b"new file") == 0
    found |= {"count": 1, "names": ["a.txt"]}
    assert b"1 new file was not kept (a.txt); declare outputs with -o\n" in run(*BARE, "true").err


# -- run: Ctrl-C -------------------------------------------------------------------------------------------------------


def interrupting(number: int, *then: str) -> Callable[[httpx.Request], httpx.Response]:
    """Follow a job and send a signal meanwhile. The second connection gets these events."""
    times = iter([True, False])

    def answer(_request: httpx.Request) -> httpx.Response:
        if next(times, False):
            os.kill(os.getpid(), number)
        return httpx.Response(200, headers=EVENTS, text="".join(then))

    return answer


@pytest.mark.usefixtures("pythons_ctrl_c")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_cancels_and_waits_until_nothing_runs(fake: Ran, run: Run, number: int, code: int) -> None:
    fake.on("GET", FOLLOW, interrupting(number, event("stdout", 0, b"bye"), END))
    fake.on("GET", "/api/jobs/j1", fake.job("running"), fake.job("cancelling"), fake.job("cancelled"))
    fake.units(unit("waiting"))
    ran = run(*BARE, "true")
    assert (ran.code, ran.out) == (code, b"bye")
    assert [one.url.path for one in fake.asked if one.method == "POST"] == [
        "/api/estimate",
        "/api/submit",
        "/api/jobs/j1/cancel",
    ]
    assert b"Ctrl-C again" in ran.err and b"job j1 is cancelled and has no running processes" in ran.err


def test_a_second_ctrl_c_says_what_still_runs(fake: Ran, run: Run) -> None:
    def again(_request: httpx.Request) -> httpx.Response:
        os.kill(os.getpid(), signal.SIGINT)
        return httpx.Response(200, headers=EVENTS, text="")

    fake.on("GET", FOLLOW, again)
    fake.on("GET", "/api/jobs/j1", fake.job("running"), fake.job("cancelling"))
    fake.units(unit("running"))
    ran = run(*BARE, "true")
    assert ran.code == 130
    assert b"job j1 is cancelling; it can still run on runner-1 for a few seconds" in ran.err


@pytest.fixture
def pythons_ctrl_c() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, even if another test in this process changed the handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("pythons_ctrl_c")
def test_ctrl_c_while_the_answer_of_the_submission_is_lost_leaves_nothing(fake: Ran, run: Run) -> None:
    accepted = fake.replies["POST", "/api/submit"][0]

    def lost(_request: httpx.Request) -> httpx.Response:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError

    fake.on("POST", "/api/submit", lost, accepted)
    assert run(*BARE, "true").code == 130
    first, second = fake.bodies("/api/submit")
    assert first == second
    assert fake.asked[-1].url.path == "/api/jobs/j1/cancel"


def test_a_reader_that_goes_away_ends_the_program(fake: Ran, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.live(event("stdout", 0, b"y\n"), END)

    def gone(_stream: str, _data: bytes) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(running, "write", gone)
    assert run(*BARE, "yes").code == 141
    assert fake.asked[-1].url.path == "/api/jobs/j1/cancel"


def test_signals_that_nohup_ignores_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with running.ending_signals():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert threading.current_thread() is threading.main_thread()


# -- run: files and options --------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "My Work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def test_the_folder_is_sent_under_a_name_of_its_own_and_again_only_what_changed(
    fake: Ran, run: Run, folder: Path
) -> None:
    fake.takes_files()
    for number in range(3):
        (folder / f"{number}.txt").write_text(f"{number}")
    ran = run("run", "--", "cat", "0.txt")
    assert (ran.code, ran.err) == (0, b"uploaded 3 files, 3 bytes of 3 files\n")
    name = fake.committed[0]
    assert name.startswith("run-my-work-") and len(name) == len("run-my-work-") + 8
    (folder / "1.txt").write_text("changed")
    assert run("run", "--", "cat").err == b"uploaded 1 file, 7 bytes of 3 files\n"
    assert fake.committed[0] == name
    assert run("run", "-q", "--", "cat").err == b""
    assert len(sent(fake)["files"]) == 64


def test_files_that_went_before_the_job_had_them_are_put_again(fake: Ran, run: Run, folder: Path) -> None:
    fake.takes_files()
    (folder / "one").touch()
    gone = problem(404, "gone", "there is no such artifact", field="parameters.files")
    fake.on("POST", "/api/submit", gone, *fake.replies["POST", "/api/submit"])
    assert run("run", "--", "true").code == 0
    first, second = fake.bodies("/api/submit")
    assert first == second and first["idempotency_key"]


def test_a_home_is_not_sent_by_accident(fake: Ran, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    ran = run("run", "--", "true")
    assert ran.code == 125 and b"--no-files" in ran.err and not fake.asked


def test_what_it_left_is_fetched_over_what_is_there(fake: Ran, run: Run, folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "a.csv").write_text("old")
    artifact = fake.keeps(**{"outputs__0__out__a.csv": b"new", "logs__0": b"done\n", "outputs__1__no": b"x"})
    fake.units(unit(artifact=artifact))
    ran = run("run", "--no-files", "--output", "out/*.csv", "--", "true")
    assert (ran.code, ran.out, ran.err) == (0, b"done\n", b"cluster: downloaded 1 file, 3 B\n")
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["a.csv"]
    assert (folder / "out" / "a.csv").read_text() == "new"


def test_nothing_that_it_left_leads_out_of_the_folder(fake: Ran, run: Run, folder: Path) -> None:
    artifact = fake.keeps_rows(
        ["f", "logs/0", 1, "0" * 64],
        ["l", "outputs/0/bad", "../../logs/0"],
        ["l", "outputs/0/good", "to"],
        ["f", "outputs/0/to", 1, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"],
        data=(b"x",),
    )
    fake.on("GET", f"/api/files/{'0' * 64}", httpx.Response(200, content=b"-"))
    fake.units(unit(artifact=artifact))
    assert run("run", "--no-files", "--output", "*", "--", "true").code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["good", "to"]


def test_options_become_parameters(fake: Ran, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "a=b")
    ran = run(
        "run",
        "--no-files",
        "--env",
        "X=1",
        "-e",
        "HERE",
        "--secret",
        "KEY",
        "--gpus",
        "2",
        "--cpus",
        "0.5",
        "--memory",
        "512",
        "--gpu-memory",
        "8000",
        "--compute-capability",
        "8.0",
        "--host",
        "h",
        "--label",
        "big",
        "--timeout",
        "9.5",
        "--stop-signal-seconds",
        "2",
        "--workspace",
        "w",
        "--python",
        "r.txt",
        "--retries",
        "2",
        "--priority",
        "high",
        "--",
        "prog",
        "--gpus",
        "--",
        "-x",
    )
    assert ran.code == 0, ran.err
    assert sent(fake) == {
        "command": ["prog", "--gpus", "--", "-x"],
        "env": {"X": "1", "HERE": "a=b"},
        "secrets": ["KEY"],
        "timeout_seconds": 9.5,
        "stop_signal_seconds": 2.0,
        "workspace": "w",
        "retries": {"max": 2},
        "python": {"requirements": "r.txt"},
        "requirements": {
            "gpus": 2,
            "gpu_memory_mib": 8000,
            "compute_capability": "8.0",
            "cpus": 0.5,
            "memory_mib": 512,
            "host": "h",
            "labels": ["big"],
        },
    }
    assert fake.bodies("/api/submit")[-1]["priority"] == "high"
    assert run("run", "--no-files", "--shell", "a | b").code == 0
    assert sent(fake) == {"command": "a | b", "retries": {"max": 0}}
    assert run("run", "--no-files", "-e", "NOT_SET_HERE", "--", "x").code == 125


# -- many units --------------------------------------------------------------------------------------------------------


def test_units_by_number_and_by_item(fake: Ran, run: Run, tmp_path: Path) -> None:
    ran = run("submit", "command", "--count", "1000", "--batch", "8", "--", "./sim", "--seed", "{unit}")
    assert (ran.code, ran.out) == (0, b"j1\n") and b"cluster watch j1" in ran.err
    assert sent(fake) == {"command": ["./sim", "--seed", "{unit}"], "count": 1000, "batch": 8, "retries": {"max": 0}}
    for name, text, items in (
        ("a.txt", "x y\n\n007\r\n", ["x y", "", "007"]),
        ("a.jsonl", '{"a": 1}\n7\n', [{"a": 1}, 7]),
        ("a.json", '[1, "two"]', [1, "two"]),
        ("windows.txt", "\ufeffx\r\ny\r\n", ["x", "y"]),
        ("windows.json", "\ufeff[1]", [1]),
    ):
        (tmp_path / name).write_text(text)
        assert run("submit", "command", "--items", str(tmp_path / name), "--", "./draw", "{item}").code == 0
        assert sent(fake) == {"command": ["./draw", "{item}"], "items": items, "retries": {"max": 0}}
    assert run("submit", "command", "--items", "-2..1", "--", "x").code == 0
    assert sent(fake)["items"] == [-2, -1, 0, 1]


def test_items_of_several_sources_are_one_list(fake: Ran, run: Run, folder: Path) -> None:
    """Only the last source was once used."""
    fake.takes_files()
    (folder / "a.txt").write_text("a\n")
    (folder / "b.jsonl").write_text('{"b": 1}\n')
    given = ("--items", "a.txt", "--items", "b.jsonl", "--items", "8..9")
    assert run("submit", "command", *given, "--", "./draw", "{item}").code == 0
    assert sent(fake)["items"] == ["a", {"b": 1}, 8, 9]
    run("map", "work:double", *given)
    assert sent(fake)["items"] == ["a", {"b": 1}, 8, 9]
    for several in (("--items", "1..60000", "--items", "1..60000"), ("--items", "a.txt", "--items", "1..100000")):
        ran = run("submit", "command", *several, "--", "x")
        assert ran.code == 2 and b"a job can have at most 100,000 units" in ran.err


def test_a_blank_line_among_lines_of_json_is_refused_by_its_number(fake: Ran, run: Run, folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"a": 1}\n \n7\n')
    ran = run("submit", "command", "--items", "a.jsonl", "--", "x")
    assert ran.code == 2 and b"a.jsonl, line 2 is blank" in ran.err and not fake.asked


def test_many_items_become_an_artifact(fake: Ran, run: Run, folder: Path) -> None:
    fake.takes_files()
    (folder / "big.txt").write_text("".join(f"item number {number}\n" for number in range(100_000)))
    lines = b"".join(b'"item number %d"\n' % number for number in range(100_000))
    parts: list[bytes] = []

    def part(request: httpx.Request) -> httpx.Response:
        parts.append(request.content)
        return httpx.Response(200, json={})

    fake.on("PUT", f"/api/files/{sha_of(lines)}/parts/0", part)
    assert run("submit", "command", "--items", "big.txt", "--", "x").code == 0
    parameters = sent(fake)
    assert parameters.keys() == {"command", "items_artifact", "count", "retries"} and parameters["count"] == 100_000
    assert fake.committed[0].startswith("items-my-work-") and parts == [lines]
    # Integers that a job would store as texts are sent in a file, too.
    assert run("submit", "command", "--items", f"{2**53}..{2**53}", "--", "x").code == 0
    assert sent(fake)["count"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--items", "5..4"), b"a job has 1 to 100,000 units"),
        (("--items", "1..100001"), b"a job has 1 to 100,000 units"),
        (("--items", "/none"), b"/none cannot be read: No such file"),
        (("--count", "2", "--items", "1..2"), b"cannot be combined with --count"),
        (("--count", "0"), b"--count"),
    ],
)
def test_bad_items_are_refused_before_anything_is_sent(
    fake: Ran, run: Run, arguments: tuple[str, ...], said: bytes
) -> None:
    ran = run("submit", "command", *arguments, "--", "x")
    assert ran.code == 2 and said in ran.err and not fake.asked


def test_map_prints_values_in_order_as_they_come(fake: Ran, run: Run, folder: Path) -> None:
    fake.takes_files()
    large = fake.keeps(values__2=b"", **{"values__2.json": json.dumps("x" * 2000).encode()})
    rows = [unit(value=10), unit("waiting", 1), unit("done", 2, value={"artifact": True}, artifact=large)]
    ended = [rows[0], unit("dead", 1, exit=1, error="exit code 1: ValueError: no"), rows[2], unit("done", 3)]
    pages = iter([[*rows, unit("waiting", 3)], ended, ended])
    now: list[Any] = []

    def answer(request: httpx.Request) -> dict[str, Any]:
        now[:] = next(pages, now)
        units = [each for each in now if each["unit"] >= int(request.url.params["from"])]
        return {"total": 4, "counts": {}, "units": units}

    fake.on("GET", UNITS, answer)
    fake.on("GET", "/api/jobs/j1", fake.job("running"), fake.job("running"), fake.job("failed"))
    ran = run("map", "work:double", "1..4")
    assert ran.code == 1
    assert [json.loads(line) for line in ran.out.splitlines()] == [10, None, "x" * 2000, None]
    assert b"item 1 failed: exit code 1: ValueError: no; show its output with: cluster logs j1 --unit 1" in ran.err
    command = sent(fake)["command"]
    assert command[:2] == ["python3", "-c"] and command[3] == "work:double" and sent(fake)["items"] == [1, 2, 3, 4]


def calls_that_end(fake: Ran, *last_lines: str) -> list[dict[str, Any]]:
    """Return records of failed calls with their last lines; the line is empty for a finished call."""
    rows = []
    for number, line in enumerate(last_lines):
        failed = {"exit": 1, "error": f"exit code 1: {line}"}
        rows.append(unit("dead", number, **failed) if line else unit("done", number, value=number))
    return rows


@pytest.mark.parametrize(
    ("last_lines", "named", "end"),
    [
        (["no work"] * 5, [0], "all 5 calls failed for this reason; list them with: cluster units j1 --state dead"),
        (
            ["no work"] * 7,
            [0],
            "all 7 calls failed, the first 5 for this reason; list them with: cluster units j1 --state dead",
        ),
        (["no", "", "no"], [0], "2 calls failed for this reason; list them with: cluster units j1 --state dead"),
        (["no", "never", "no"], [0, 1], "all 3 calls failed; list them with: cluster units j1 --state dead"),
        (["no", "never"], [0, 1], None),
        (["no"], [0], None),
    ],
)
def test_map_explains_calls_that_failed_alike_once(
    fake: Ran, run: Run, folder: Path, last_lines: list[str], named: list[int], end: str | None
) -> None:
    fake.takes_files()
    rows = calls_that_end(fake, *last_lines)

    def answer(request: httpx.Request) -> dict[str, Any]:
        return {"total": len(rows), "counts": {}, "units": rows[int(request.url.params["from"]) :]}

    fake.on("GET", UNITS, answer)
    fake.on("GET", "/api/jobs/j1", fake.job("failed"))
    ran = run("map", "work:double", f"1..{len(rows)}")
    lines = [line.removeprefix("cluster: ") for line in ran.err.decode().splitlines() if "failed" in line]
    assert ran.code == 1 and [int(line.split()[1]) for line in lines if line.startswith("item ")] == named
    assert [line for line in lines if not line.startswith("item ")] == ([end] if end else [])


def test_map_of_what_cannot_be_a_function_sends_nothing(fake: Ran, run: Run) -> None:
    ran = run("map", "work.double", "1..4")
    assert ran.code == 2 and b"module:function" in ran.err
    assert run("map", "work:double").code == 2
    assert not fake.asked


NO_RUNNER = "no live worker serves the queue runner.normal: start a runner"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["run", "--gpus", "4", "--", "x"], 125),
        (["submit", "command", "--gpus", "4", "--files", ".", "--", "x"], 2),
        (["map", "work:double", "1..4", "--gpus", "4"], 2),
    ],
)
def test_a_program_that_no_runner_could_take_is_not_uploaded_unless_it_shall_wait(
    fake: Ran, run: Run, folder: Path, words: list[str], code: int
) -> None:
    fake.takes_files()
    fake.fits(NO_RUNNER)
    ran = run(*words)
    assert ran.code == code and NO_RUNNER.encode() in ran.err and b"--queue" in ran.err
    [(method, path)] = [(each.method, each.url.path) for each in fake.asked]
    assert (method, path) == ("POST", "/api/estimate")
    estimated = json.loads(fake.asked[0].content)["parameters"]
    assert estimated == {"command": ["true"], "requirements": {"gpus": 4}}
    fake.on("GET", "/api/jobs/j1", fake.job("failed"))
    at = words.index("--gpus")
    run(*words[:at], "--queue", *words[at:])
    assert sent(fake)["requirements"] == {"gpus": 4}


# -- logs and units ----------------------------------------------------------------------------------------------------


def test_logs_print_a_stream_or_both(fake: Ran, run: Run) -> None:
    fake.units(unit(artifact=fake.keeps(**{"logs__0": b"outerr", "logs__0.streams": b"[[3, 3]]"})))
    assert run("logs", "j1").out == b"outerr"
    assert run("logs", "j1", "--stream", "stderr").out == b"err"
    assert run("logs", "j1", "--stream", "stdout", "-f").out == b"out"


def test_logs_of_several_units_say_whose_they_are(fake: Ran, run: Run) -> None:
    artifact = fake.keeps(logs__0=b"zero\n", logs__2=b"two\n")
    fake.units(unit(artifact=artifact), unit("waiting", 1), unit("dead", 2, artifact=artifact, exit=1))
    assert run("logs", "j1").out == b"==> unit 0 <==\nzero\n==> unit 2 <==\ntwo\n"
    assert run("logs", "j1", "--unit", "2").out == b"two\n"
    ran = run("logs", "j1", "-f")
    assert ran.code == 2 and b"cluster logs j1 -f --unit NUMBER" in ran.err
    ran = run("logs", "j1", "--unit", "1")
    assert ran.code == 2 and b"unit 1 is waiting" in ran.err and b"cluster logs j1 -f --unit 1" in ran.err


def test_logs_whose_artifact_was_deleted_do_not_hide_others(fake: Ran, run: Run) -> None:
    fake.units(unit(artifact="a" * 64), unit("done", 1, artifact=fake.keeps(logs__1=b"one\n")))
    gone = {"title": "Not Found", "status": 404, "detail": "artifact a does not exist", "field": "artifact"}
    fake.on("GET", f"/api/artifacts/{'a' * 64}/manifest", httpx.Response(404, json=gone))
    ran = run("logs", "j1")
    assert ran.code == 0 and ran.out == b"==> unit 0 <==\n==> unit 1 <==\none\n"
    assert b"the output of unit 0 was deleted" in ran.err


def falls_silent(*parts: str) -> Callable[[httpx.Request], httpx.Response]:
    """Return a reply that streams these events and then nothing until the client gives up."""

    def stream() -> Iterator[bytes]:
        yield "".join(parts).encode()
        raise httpx.ReadTimeout("silent")

    return lambda request: httpx.Response(200, headers=EVENTS, content=stream())


def test_logs_print_what_a_running_unit_has_written_so_far(fake: Ran, run: Run) -> None:
    fake.units(unit("running"))
    fake.on("GET", FOLLOW, falls_silent(event("stdout", 0, b"step 1\n")))
    ran = run("logs", "j1")
    assert (ran.code, ran.out) == (0, b"step 1\n")
    assert ran.err == b"cluster: unit 0 is running; follow it with: cluster logs j1 -f --unit 0\n"
    fake.on("GET", FOLLOW, falls_silent())
    assert b"unit 0 is running and has written nothing yet" in run("logs", "j1").err


def test_logs_of_a_unit_that_ends_meanwhile_are_complete(fake: Ran, run: Run) -> None:
    running, done = unit("running"), unit(artifact=fake.keeps(logs__0=b"step 1\nstep 2\n"))
    fake.on("GET", UNITS, page(running), page(running), page(running), page(done))
    fake.live(event("stdout", 0, b"step 1\n"), END)
    ran = run("logs", "j1")
    assert (ran.code, ran.out, ran.err) == (0, b"step 1\nstep 2\n", b"")


def test_logs_of_several_units_contain_the_output_of_running_ones(fake: Ran, run: Run) -> None:
    fake.units(unit(artifact=fake.keeps(logs__0=b"zero\n")), *(unit("running", number) for number in range(1, 7)))
    for number in range(1, 7):
        path = FOLLOW.replace("/logs/0/", f"/logs/{number}/")
        fake.on("GET", path, falls_silent(event("stdout", 0, b"%d\n" % number)))
    ran = run("logs", "j1")
    units = "".join(f"==> unit {number} <==\n{number or 'zero'}\n" for number in range(5))
    assert ran.out.decode() == units
    assert b"2 more units are running; print one with: cluster logs j1 --unit NUMBER" in ran.err


def test_following_jumps_over_gaps_and_says_so(fake: Ran, run: Run) -> None:
    fake.live(event("stdout", 0, b"a"), event("stdout", 5001, b"b"), END)
    ran = run("logs", "j1", "-f")
    assert ran.out == b"ab" and b"skipped 4.88 KiB" in ran.err


def test_units_are_listed_with_what_they_left(fake: Ran, run: Run) -> None:
    rows = (unit(value={"loss": 0.5}), unit("dead", 1, exit=2, error="exit code 2"), unit("waiting", 2, worker=None))
    fake.units(*rows)
    ran = run("units", "j1")
    lines = ran.out.decode().splitlines()
    assert lines[0].split() == ["unit", "state", "exit", "took", "attempts", "worker", "value", "why"]
    assert '{"loss": 0.5}' in lines[1] and lines[2].endswith("exit code 2")
    assert ran.err == b"1 done, 1 dead, 1 waiting\n"
    assert [json.loads(line)["unit"] for line in run("units", "j1", "--state", "dead", "--json").out.splitlines()] == [
        1
    ]


def test_what_was_fetched_into_a_new_folder_is_not_sent_with_the_folder_around_it(
    fake: Ran, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "old").mkdir()
    fake.units(unit(artifact=fake.keeps(outputs__0__out__a=b"a")))
    for name in ("got", "old"):
        assert run("result", "j1", "--fetch", str(tmp_path / name)).code == 0
    paths = [entry.path for entry in trees.scan(tmp_path).entries]
    assert paths == ["old/0/out/a"], "one that was there before is sent as any other"
    assert [entry.path for entry in trees.scan(tmp_path / "got").entries] == ["0/out/a"]


def test_what_all_units_left_is_fetched_by_unit(fake: Ran, run: Run, tmp_path: Path) -> None:
    one = fake.keeps(**{"outputs__0__a.csv": b"0", "outputs__1__d__b.csv": b"1", "logs__0": b"x"})
    two = fake.keeps(**{"outputs__1__d__b.csv": b"new", "values__1.json": b"[1]"})
    fake.units(unit(artifact=one), unit("done", 1, artifact=two), unit("running", 2))
    ran = run("result", "j1", "--fetch", str(tmp_path / "got"))
    assert ran.code == 0 and b"has the files of 2 units; downloaded 3 files" in ran.out
    found = {
        str(path.relative_to(tmp_path / "got")): path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert found == {"0/a.csv": "0", "1/d/b.csv": "new", "values/1.json": "[1]", ".clusterignore": "*\n"}
    assert b"downloaded 0" in run("result", "j1", "--fetch", str(tmp_path / "got")).out
    assert run("result", "j1", "--fetch", str(tmp_path / "flat"), "--flat").code == 0
    assert (tmp_path / "flat" / "d" / "b.csv").read_text() == "new" and (tmp_path / "flat" / "a.csv").is_file()
    fake.units(
        unit(artifact=one), unit("done", 1, artifact=fake.keeps(outputs__1__a=b"", **{"outputs__1__a.csv": b"1"}))
    )
    ran = run("result", "j1", "--fetch", str(tmp_path / "both"), "--flat")
    assert ran.code == 2 and b"units 0 and 1 both stored the file a.csv" in ran.err and b"without --flat" in ran.err


def test_what_was_not_kept_is_said(fake: Ran, run: Run) -> None:
    fake.live(event("stdout", 0, b"a"), event("stdout", 5, b"b"), END)
    ran = run(*BARE, "true")
    assert ran.out == b"a" and b"the rest of the output was not stored" in ran.err


def test_a_terminal_obeys_colours_alone() -> None:
    shown = terminal.Visible()
    parts = [b"\x1b[3", b"1mred\x1b", b"[0m\x1b]0;title\x07 \xc3", b"\xa9\t\r\n\x9b", b"1m \xff\x1b["]
    text = b"".join([*map(shown.add, parts), shown.end()]).decode()
    assert text == "\x1b[31mred\x1b[0m\\x1b]0;title\\x07 \xe9\t\r\n\ufffd1m \ufffd\\x1b["


# -- from Python -------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(fake: Ran) -> Iterator[api.Cluster]:
    with api.Cluster("") as connected:
        yield connected


def test_run_from_python_is_a_program_where_it_is_given_words(fake: Ran, cluster: api.Cluster) -> None:
    fake.on("GET", "/api/jobs/j1", fake.job("failed"))
    row = unit("dead", exit=3, artifact=fake.keeps(**{"logs__0": b"outerr", "logs__0.streams": b"[[3, 3]]"}))
    fake.units(row)
    ended = cluster.run(["python3", "x.py"], env={"A": "1"}, gpus=1)
    assert (ended.exit, ended.stdout, ended.stderr, ended.worker) == (3, b"out", b"err", "runner-1")
    assert sent(fake) == {
        "command": ["python3", "x.py"],
        "env": {"A": "1"},
        "requirements": {"gpus": 1},
    }
    fake.on("GET", "/api/jobs/j1", fake.job("cancelled"))
    with pytest.raises(errors.JobEnded):
        cluster.run(["true"])


def test_map_from_python_gives_values_until_one_fails(fake: Ran, cluster: api.Cluster, folder: Path) -> None:
    fake.takes_files()
    fake.units(unit(value=[1]), unit("dead", 1, exit=1), unit("done", 2))
    mapped = cluster.map("work:double", (number for number in range(3)))
    assert mapped.job_id == "j1" and next(mapped) == [1]
    with pytest.raises(errors.UnitFailed, match="unit 1 of job j1 failed: exit code 1"):
        next(mapped)
    with pytest.raises(errors.BadArgument, match="move the function into a module"):
        cluster.map(lambda: None, [1])
    with pytest.raises(errors.BadArgument, match="item 1 cannot be sent as JSON"):
        cluster.map(os.path.join, [1, {2}])
    assert sent(fake)["command"][3] == "work:double"


def test_programs_from_python_are_not_sent_if_no_runner_could_take_them(
    fake: Ran, cluster: api.Cluster, folder: Path
) -> None:
    fake.takes_files()
    fake.fits(NO_RUNNER)
    fake.on("GET", "/api/jobs/j1", fake.job("failed"))
    for call in (
        lambda **how: cluster.run(["true"], files=".", **how),
        lambda **how: cluster.map("work:f", [1], **how),
    ):
        fake.asked.clear()
        with pytest.raises(errors.NoRunner, match=NO_RUNNER) as refused:
            call(gpus=4)
        assert "queue=True" in refused.value.next
        assert [each.url.path for each in fake.asked] == ["/api/estimate"]
        call(gpus=4, queue=True)
        assert sent(fake)["requirements"] == {"gpus": 4}
        assert [each.url.path for each in fake.asked].count("/api/estimate") == 1


def test_a_job_that_ends_before_its_units_ends_the_iteration(fake: Ran, cluster: api.Cluster) -> None:
    fake.on("GET", "/api/jobs/j1", fake.job("cancelled"))
    fake.units(unit(value=1), unit("waiting", 1))
    rows = cluster.programs.finished("j1")
    assert next(rows)["value"] == 1
    with pytest.raises(errors.JobEnded, match="was cancelled"):
        next(rows)


def test_ten_thousand_units_are_read_by_pages_in_order(fake: Ran, cluster: api.Cluster) -> None:
    fake.units(*(unit(number=number, value=number) for number in range(2500)))
    assert [row["value"] for row in cluster.programs.finished("j1")] == list(range(2500))
    assert [row["unit"] for row in cluster.programs.units("j1", first=1200)] == list(range(1200, 2500))
    asked = [dict(one.url.params) for one in fake.asked if one.url.path == UNITS]
    assert len(asked) == 5 and all(one["limit"] == "1000" for one in asked)


def test_the_call_of_a_function_takes_and_gives_json(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("class A:\n    @staticmethod\n    def b(x):\n        return [x, 1 / (x - 1)]\n")
    for item, code in ((3, 0), (1, 1)):
        environment = {**os.environ, "CLUSTER_ITEM": str(item), "CLUSTER_RESULT": str(tmp_path / "value")}
        command = [sys.executable, *programs.call_command("work:A.b")[1:]]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == code
    assert json.loads((tmp_path / "value").read_text()) == [3, 0.5]
    assert "ZeroDivisionError" in ran.stderr
