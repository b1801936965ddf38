"""Tests `cluster run`, `map` and `logs` as processes with a real cluster and a runner."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.integration.live import TOP, Live, until
from tests.integration.test_coming_from import PROGRAMS, PYTHON_PROGRAMS, SNIPPETS
from threads_cluster import Cluster
from threads_cluster.client.calling import pickling
from threads_cluster.client.calling.futures import ClusterFuture

#: Program that writes to both streams in pieces and exits with its own code.
BOTH = """
import sys, time
for number in range(5):
    print("out", number, flush=True)
    print("err", number, file=sys.stderr, flush=True)
    time.sleep(0.3)
sys.stdout.buffer.write(b"\\x00\\xff no end")
sys.exit(7)
"""
#: Program that reports its start and stops slowly on request.
SLOW_TO_END = """
import signal, sys, time
def end(*_):
    print("asked to end", flush=True)
    time.sleep(1)
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
print("begun", flush=True)
time.sleep(600)
"""

CALLS = """
def half(n):
    return {"half": 120 // n, "large": "x" * (1200 if n == 3 else 0)}
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start one coordinator with an artifact folder, and one runner with two slots."""
    store = tmp_path_factory.mktemp("store")
    live = Live(tmp_path_factory.mktemp("programs"), workers=0, ARTIFACT_URL=f"file://{store}")
    try:
        live.start_redis()
        live.start_coordinator()
        live.start_runner(0)
        live.wait_ready(1)
        yield live
    finally:
        live.stop()


@pytest.fixture(scope="module")
def user(programs: Live) -> dict[str, str]:
    return programs.user("read", "submit", "run")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for name, text in {"both.py": BOTH, "slow.py": SLOW_TO_END}.items():
        (folder / name).write_text(text)
    return folder


def start(user: dict[str, str], folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "error", "-m", "threads_cluster", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=user, cwd=folder, stdout=pipe, stderr=pipe, bufsize=0)


def ran(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def own(err: bytes) -> bytes:
    """Remove the command's own messages."""
    return b"".join(line for line in err.splitlines(keepends=True) if not line.startswith((b"cluster: ", b"uploaded ")))


def alive(part: str) -> list[int]:
    """Return the processes whose command line contains a text."""
    return [each.pid for each in psutil.process_iter(["cmdline"]) if part in " ".join(each.info["cmdline"] or ())]


def test_output_and_exit_code_are_those_of_the_same_command_here(user: dict[str, str], work: Path) -> None:
    here = subprocess.run([sys.executable, "both.py"], cwd=work, capture_output=True)
    code, out, err = ran(start(user, work, "run", "--", "python3", "both.py"))
    assert (code, out, own(err)) == (here.returncode, here.stdout, here.stderr) and code == 7
    code, out, err = ran(start(user, work, "run", "--", "python3", "none.py"))
    assert code == 2 and not out and b"No such file" in own(err)
    assert b"uploaded 0 files, 0 bytes of 2 files" in err
    assert ran(start(user, work, "run", "--no-files", "--", "no-such-program"))[0] == 127
    assert ran(start(user, work, "run", "--no-files", "--shell", "kill -9 $$"))[0] == 137


def test_output_comes_while_the_program_runs(user: dict[str, str], work: Path) -> None:
    process = start(user, work, "run", "-q", "--no-files", "--shell", "echo begun; sleep 600")
    try:
        assert process.stdout and process.stdout.readline() == b"begun\n"
    finally:
        process.send_signal(signal.SIGINT)
        assert ran(process)[0] == 130


def test_all_of_much_output_comes_through(user: dict[str, str], work: Path) -> None:
    line = "0123456789abcdef" * 4
    code, out, err = ran(start(user, work, "run", "-q", "--no-files", "--shell", f"yes {line} | head -n 60000"))
    assert code == 0 and out == f"{line}\n".encode() * 60_000, err


def test_a_reader_that_goes_away_ends_the_program(programs: Live, user: dict[str, str], work: Path) -> None:
    process = start(user, work, "run", "-q", "--no-files", "--", "yes")
    assert process.stdout and process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.wait(120) == 141
    assert process.stderr
    process.stderr.close()
    [job] = programs.get("/api/jobs?limit=1")["jobs"]
    programs.wait_for(job["job_id"], "cancelled")


def test_a_timeout_is_exit_code_124(user: dict[str, str], work: Path) -> None:
    code, out, err = ran(start(user, work, "run", "--no-files", "--timeout", "0.5", "--", "sleep", "600"))
    assert (code, out) == (124, b"") and b"ended by the cluster: the program ran longer than --timeout, 0.5" in err


def test_ctrl_c_ends_it_and_nothing_of_it_runs_afterwards(user: dict[str, str], work: Path) -> None:
    marked = f"mark{os.getpid()}x"
    process = start(user, work, "run", "--", "python3", "slow.py", marked)
    assert process.stdout and process.stdout.readline() == b"begun\n"
    on_runner = f"python3 slow.py {marked}"
    assert [pid for pid in alive(on_runner) if pid != process.pid]
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, out, err = ran(process)
    assert (code, out) == (130, b"asked to end\n") and b"has no running processes" in err
    assert not [pid for pid in alive(on_runner) if pid != process.pid]
    assert time.monotonic() - began < 60


def test_a_lost_coordinator_is_survived_and_the_output_goes_on(
    programs: Live, user: dict[str, str], work: Path
) -> None:
    text = "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.5; done"
    process = start(user, work, "run", "--no-files", "--shell", text)
    assert process.stdout and process.stdout.readline() == b"line 1\n"
    programs.kill("coordinator-0")
    programs.start_coordinator()
    code, out, err = ran(process)
    assert (code, out) == (0, b"".join(b"line %d\n" % number for number in range(2, 9))), err


def test_what_it_writes_is_fetched(user: dict[str, str], work: Path) -> None:
    (work / "out").mkdir()
    (work / "out" / "a.txt").write_text("before")
    command = ("run", "--output", "out/*", "--shell", "tr a-z A-Z < out/a.txt > out/b.txt; echo new > out/a.txt")
    code, _, err = ran(start(user, work, *command))
    assert code == 0, err
    assert (work / "out" / "a.txt").read_text() == "new\n" and (work / "out" / "b.txt").read_text() == "BEFORE"


def test_map_gives_values_in_order_and_says_which_failed(user: dict[str, str], work: Path) -> None:
    (work / "calls.py").write_text(CALLS)
    code, out, err = ran(start(user, work, "map", "--retries", "0", "calls:half", "0..5"))
    values = [json.loads(line) for line in out.splitlines()]
    assert code == 1, err
    assert values[0] is None and [value["half"] for value in values[1:]] == [120, 60, 40, 30, 24]
    assert len(values[3]["large"]) == 1200
    job_id = err.split(b"cluster: job ")[1].split()[0].decode()
    assert b"ZeroDivisionError" in ran(start(user, work, "logs", job_id, "--unit", "0"))[1]
    rows = [json.loads(line) for line in ran(start(user, work, "units", job_id, "--json"))[1].splitlines()]
    assert [row["state"] for row in rows] == ["dead"] + ["done"] * 5 and rows[0]["exit"] == 1


def test_many_units_leave_files_and_logs(user: dict[str, str], work: Path) -> None:
    (work / "names.txt").write_text("a b\nc\n")
    command = ("submit", "command", "--items", "names.txt", "--output", "*.txt", "--wait")
    code, _, err = ran(start(user, work, *command, "--", "sh", "-c", 'echo "$0" | tee got.txt', "{item}"))
    assert code == 0, err
    job_id = err.split(b"job ")[1].split()[0].decode()
    assert ran(start(user, work, "logs", job_id))[1] == b"==> unit 0 <==\na b\n==> unit 1 <==\nc\n"
    assert ran(start(user, work, "result", job_id, "--fetch", "got"))[0] == 0
    assert (work / "got" / "0" / "got.txt").read_text() == "a b\n"
    assert (work / "got" / "1" / "got.txt").read_text() == "c\n"


def test_a_job_is_followed_from_elsewhere(programs: Live, user: dict[str, str], work: Path) -> None:
    job_id = ran(start(user, work, "run", "--no-wait", "--no-files", "--shell", "echo one; sleep 1; echo two"))[1]
    code, out, _ = ran(start(user, work, "logs", "-f", job_id.decode().strip()))
    assert (code, out) == (0, b"one\ntwo\n")
    until(lambda: programs.job(job_id.decode().strip())["state"] == "done")


# -- rows of docs/coming-from.md that need a runner --------------------------------------------------------------------


@pytest.fixture
def own_work(work: Path) -> Path:
    """Return the folder of a user who comes from another system."""
    (work / "train.py").write_text("print('trained')\n")
    (work / "work.py").write_text("def double(n):\n    return 2 * n\n")
    (work / "names.txt").write_text("a\nb\n")
    return work


@pytest.fixture(scope="module")
def left_job(programs: Live, user: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a finished job with an output file."""
    command = ("submit", "command", "--output", "got", "--wait", "--json", "--shell", "echo 1 | tee got")
    code, out, err = ran(start(user, tmp_path_factory.mktemp("left"), *command))
    assert code == 0, err
    job: str = json.loads(out)["job_id"]
    return job


@pytest.mark.parametrize("typed", PROGRAMS)
def test_a_command_of_the_page_works(
    programs: Live, user: dict[str, str], own_work: Path, left_job: str, typed: str
) -> None:
    words = [{"JOB": left_job, "FOLDER": "got", "HOST": "host-0"}.get(word, word) for word in shlex.split(typed)[1:]]
    code, out, err = ran(start(user, own_work, *words))
    assert code == 0 and out, err
    if words[0] == "submit" or "--no-wait" in words:
        programs.post(f"/api/jobs/{out.decode().strip()}/cancel")


def test_the_lines_of_python_of_the_page_work(
    programs: Live, user: dict[str, str], own_work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_work)
    mapping, single, *same = PYTHON_PROGRAMS
    assert set(same) == {single}
    with Cluster(user["CLUSTER_URL"], user["CLUSTER_TOKEN"]) as cluster:
        assert list(eval(mapping, {"Cluster": lambda: cluster})) == list(range(0, 20, 2))  # noqa: S307 - the page's
        assert eval(single, {"Cluster": lambda: cluster}).stdout == b"trained\n"  # noqa: S307 - the page's


@pytest.mark.parametrize("page", [page for page, snippet in SNIPPETS.items() if "HeadNode" not in snippet and snippet])
def test_the_python_code_of_the_page_prints_its_comments(user: dict[str, str], tmp_path: Path, page: str) -> None:
    expected = re.findall(r"^ *print\(.*\)  # (.*)$", SNIPPETS[page], re.MULTILINE)
    script = tmp_path / "script.py"
    script.write_text(SNIPPETS[page])
    environment = {**os.environ, **user, "PYTHONPATH": str(TOP)}
    ended = subprocess.run(
        [sys.executable, script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == expected != []


class CountingTransport(httpx.HTTPTransport):
    """Transport that counts the bytes of responses."""

    received = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = CountedStream(self, response.stream)
        return response


class CountedStream(httpx.SyncByteStream):
    def __init__(self, transport: CountingTransport, stream: httpx.SyncByteStream) -> None:
        self._transport, self._stream = transport, stream

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            self._transport.received += len(piece)
            yield piece

    def close(self) -> None:
        self._stream.close()


def submit_chain(cluster: Cluster, size: int, seconds: float) -> list[ClusterFuture]:
    """Submit calls that return an array after some seconds, double the array, and return its size."""

    def make() -> bytearray:
        time.sleep(seconds)
        return bytearray(b"1") * size

    first = cluster.task(make).submit()
    second = cluster.task(lambda array: array + array).submit(first)
    return [first, second, cluster.task(len).submit(second)]


def test_results_of_calls_do_not_travel_through_the_client(user: dict[str, str]) -> None:
    transport, size = CountingTransport(), 8 << 20
    with Cluster(user["CLUSTER_URL"], user["CLUSTER_TOKEN"], patience=60, transport=transport) as cluster:
        calls = submit_chain(cluster, size, 0.0)
        assert calls[2].result(60) == 2 * size
        assert transport.received < 1 << 20
        later = submit_chain(cluster, 1 << 20, 1.0)
        assert until(lambda: later[2].job_id)
    with Cluster(user["CLUSTER_URL"], user["CLUSTER_TOKEN"], patience=60) as cluster:  # The first client has ended
        last = str(later[2].job_id)
        assert cluster.wait(last)["state"] == "done"
        assert pickling.decode(cluster.programs.unit(last, 0)["value"]) == 2 << 20
        assert [each["job_id"] for each in cluster.relations(last)["parents"]] == [later[1].job_id]
