"""Tests `./deploy-cluster.sh local` like a user: in a separate checkout with this checkout's environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from coordinator.secrets.keys import Keys
from deploy.local import ports, processes, samples, shape
from tests import kernels, packages
from tests.ports import free_port
from tests.unit import monitoring

ROOT = Path(__file__).resolve().parents[2]
COPIED = (*packages.ALL, "prometheus", "requirements", "deploy-cluster.sh")
#: Timeout in seconds. The first start compiles the kernels, possibly on two shared cores.
START_SECONDS = 280

pytestmark = pytest.mark.slow


def until(what: Callable[[], Any], seconds: float = 90.0) -> Any:
    """Return the first true result of `what`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = what()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)


class Checkout:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path / ".cluster"

    def command(self, *arguments: str) -> list[str]:
        return [str(self.path / "deploy-cluster.sh"), *arguments]

    def call(self, *arguments: str, timeout: float = 240.0) -> subprocess.CompletedProcess[str]:
        # The script must find its folder when it is called from another one.
        return subprocess.run(self.command(*arguments), cwd="/", capture_output=True, text=True, timeout=timeout)

    def client(self, *arguments: str) -> list[str]:
        """Run the `cluster` command of this checkout."""
        program = "import sys; from threads_cluster.cli.main import main; sys.exit(main())"
        return [str(self.path / ".venv/bin/python"), "-c", program, *arguments]

    def cluster(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.client(*arguments), cwd=self.path, capture_output=True, text=True, timeout=240)

    def cluster_process(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.client(*arguments), cwd=self.path, stderr=subprocess.DEVNULL)

    def processes(self) -> list[psutil.Process]:
        return processes.find_marked(f"@{self.folder}")

    def process(self, words: str) -> Any:
        """Return the supervised process whose command line contains `words`."""
        for process in self.processes():
            try:
                found = words in " ".join(process.cmdline()) and process.parent()
                if found and "deploy.local.supervisor_daemon" in found.cmdline():
                    return process
            except psutil.Error:
                continue
        return None

    @contextmanager
    def up(self, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        """Start a cluster, and return it and its URL when it is ready."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with (self.path / "said").open("wb") as said:
            command = self.command("local", "--port", str(port), "--no-samples", *(options or ("--no-runner",)))
            starter = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        try:
            until(lambda: "Stop: " in self.said() or starter.poll() is not None, START_SECONDS)
            assert starter.poll() is None, self.said()
            yield starter, url
        finally:
            starter.terminate()
            starter.wait(60)

    def said(self) -> str:
        return (self.path / "said").read_text()


def get(url: str, path: str) -> Any:
    with urllib.request.urlopen(f"{url}{path}", timeout=30) as answer:
        return json.load(answer)


def ready(url: str) -> bool:
    try:
        get(url, "/ready")
        return bool(get(url, "/api/status")["workers"]["ready"] >= 1)
    except OSError:
        return False


def copied(path: Path) -> Checkout:
    """Return a copy of the code in a new folder, with this checkout's environment."""
    path.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, path / name, ignore=packages.ignore_unfinished)
        else:
            shutil.copy(ROOT / name, path / name)
    environment = path / ".venv"
    environment.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (environment / name).symlink_to(Path(sys.prefix) / name)
    shutil.copy(Path(sys.prefix) / "local.stamp", environment)
    (environment / "place").write_text(f"{path}\n")
    (path / "web/dist").mkdir(parents=True)
    for name in ("index", "cluster"):
        (path / f"web/dist/{name}.html").write_text("<!doctype html><title>Pages</title>")
    return Checkout(path)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """Return a copy in a folder whose name contains a space."""
    made = copied(tmp_path_factory.mktemp("a user's") / "100% threads")
    yield made
    processes.stop_marked(f"@{made.folder}")


@pytest.fixture(scope="module", autouse=True)
def _shared_kernels() -> Iterator[None]:
    """Checkouts with equal sources share compiled kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(kernels.CACHE))
        yield


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "Usage: "),
        (
            ("dokcer",),
            2,
            "the command 'dokcer' does not exist; the commands are: local, bundle, invite, join",
        ),
        (("local", "--port", "web"), 2, "--port needs a number from 1 to 65535; got 'web'"),
        (("metrics",), 2, "metrics needs the option --config"),
        (("metrics", "--config"), 1, "no local cluster of this checkout is running"),
        (("local", "--workers", "0"), 2, "--workers needs a number from 1 to 64; got '0'"),
        (("local", "--workers"), 2, "--workers needs a number"),
        (("local", "--onec"), 2, "local has no option '--onec'"),
        (("local", "--json"), 2, "--json requires --once"),
        (("stop", "now"), 2, "stop accepts only options that choose a cluster"),
        (("status",), 1, "No local cluster of this checkout is running. Start one: ./deploy-cluster.sh local"),
        (("stop",), 0, "No local cluster of this checkout is running."),
    ],
)
def test_what_cannot_be_done_is_said_with_its_exit_code(
    checkout: Checkout, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = checkout.call(*arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert not done.stdout


def test_help_goes_to_stdout(checkout: Checkout) -> None:
    done = checkout.call("help")
    assert done.returncode == 0
    assert "--no-samples" in done.stdout


def test_a_given_port_that_is_taken_is_an_error(checkout: Checkout) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = checkout.call("local", "--port", str(server.getsockname()[1]))
    assert done.returncode == 6
    assert "is in use by another program" in done.stderr
    assert not checkout.processes()


def test_the_next_free_port_is_taken_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ports.next_free("127.0.0.1", port, "the cluster") > port
    assert f"Port {port} is in use; the cluster uses" in capsys.readouterr().err


def test_clusters_that_start_at_once_take_ports_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters once found the same free ports, and one of them failed with a traceback.

    `make many-starts` starts eight clusters.
    """
    monkeypatch.delenv("METRICS_PORT", raising=False)
    several = [copied(tmp_path / f"checkout {number}") for number in range(int(os.environ.get("STARTS", "3")))]
    starters = []
    try:
        for one in several:
            with (one.path / "said").open("wb") as said:
                command = one.command("local", "--no-samples", "--no-runner")
                starters.append(subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True))
        for one, starter in zip(several, starters, strict=True):
            until(lambda: "Stop: " in one.said() or starter.poll() is not None, START_SECONDS)  # noqa: B023
            assert starter.poll() is None, one.said()
        urls = [(one.folder / "url").read_text().strip() for one in several]
        metrics = [int(one.process("-m coordinator").environ()["METRICS_PORT"]) for one in several]
        assert len(set(urls)) == len(set(metrics)) == len(several)
        for one, url, port in zip(several, urls, metrics, strict=True):
            assert " exited and is being restarted" not in one.said()
            [worker] = get(url, "/api/workers")["workers"]
            assert worker["pid"] in [each.pid for each in one.processes()], "another cluster answers"
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                assert b"cluster_" in answer.read()
    finally:
        for starter in starters:
            starter.terminate()
        for starter in starters:
            starter.wait(60)


@pytest.mark.parametrize(
    ("cores", "workers", "lanes"), [(8, 1, (8,)), (8, 3, (3, 3, 2)), (2, 2, (1, 1)), (2, 4, (1, 1, 1, 1))]
)
def test_workers_share_the_cores(cores: int, workers: int, lanes: tuple[int, ...]) -> None:
    assert shape.split(cores, workers) == lanes


def test_once_prints_one_object_a_job_and_leaves_nothing_running(checkout: Checkout) -> None:
    done = checkout.call("local", "--once", "--port", str(free_port()), timeout=START_SECONDS + 60)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(job["type"], job["state"]) for job in found] == [("collatz", "done"), ("thread", "done")]
    for job, sample in zip(found, samples.SAMPLES, strict=True):
        assert all(samples.value_at(job["result"], place) is not None for place in sample.figures.values())
    assert re.search(r"2 sample jobs took [0-9.]+ s\.", done.stderr)
    assert not checkout.processes()
    assert not (checkout.folder / "url").exists()


@pytest.mark.parametrize("as_json", [True, False])
def test_a_terminal_gets_figures_and_not_everything(
    checkout: Checkout, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    job = {"job_id": "j1", "title": "A title", "state": "done", "seconds": 2.0, "done": 10, "result": {"a": [{"b": 7}]}}
    monkeypatch.setattr(samples, "call", lambda command: (0, json.dumps(job)))
    sample = samples.Sample(("kind",), {"name": ("a", 0, "b"), "of another version": ("a", 1, "b")})
    made = processes.Run.new(checkout.folder)
    assert samples.submit(made, "http://127.0.0.1:1", sample, as_json=as_json, kept="start it: ")
    out = capsys.readouterr().out
    if as_json:
        assert json.loads(out) == job
    else:
        assert out.splitlines() == [
            "A title: j1 done in 2.0 s, 10 units at 5/s",
            "  name  7",
            "  All results: start it: .venv/bin/cluster result j1",
        ]


@contextmanager
def prometheus(configuration: Path) -> Iterator[Callable[[str], Any]]:
    """Run Prometheus, and return a function that returns the data of one of its responses, or fail without a server."""
    monitoring.need_prometheus()
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={configuration}", f"--web.listen-address={address}", "--log.level=warn"]
    server = subprocess.Popen([*command, f"--storage.tsdb.path={configuration.parent}/data"])

    def ask(path: str) -> Any:
        return get(f"http://{address}", f"/api/v1/{path}")["data"]

    try:
        until(lambda: accepts(address))
        yield ask
    finally:
        server.terminate()
        server.wait(30)


def pending_runbooks(response: Any, name: str) -> list[str]:
    """Return the runbook URLs of the alerts with this name."""
    return [each["annotations"]["runbook_url"] for each in response["alerts"] if each["labels"]["alertname"] == name]


def accepts(address: str) -> bool:
    """Return True if a server answers at this address."""
    try:
        return bool(get(f"http://{address}", "/api/v1/status/runtimeinfo"))
    except OSError:
        return False


@pytest.fixture(scope="class")
def cluster(checkout: Checkout) -> Iterator[tuple[Checkout, str]]:
    with checkout.up() as (_, url):
        yield checkout, url


class TestOneThatStaysUp:
    def test_it_serves_the_pages_that_are_built(self, cluster: tuple[Checkout, str]) -> None:
        checkout, url = cluster
        assert f"Pages: {url}/\n" in checkout.said()
        with urllib.request.urlopen(url, timeout=30) as page:
            assert b"<title>Pages</title>" in page.read()
            assert page.headers["X-Frame-Options"] == "DENY"

    def test_a_second_start_takes_seconds(self, cluster: tuple[Checkout, str]) -> None:
        checkout, _ = cluster
        line = next(line for line in checkout.said().splitlines() if line.startswith("Ready after"))
        assert float(line.split()[2]) < 60

    def test_the_address_lies_where_the_command_finds_it(self, cluster: tuple[Checkout, str]) -> None:
        checkout, url = cluster
        assert (checkout.folder / "url").read_text() == f"{url}\n"
        assert url in checkout.call("status").stderr

    def test_its_admin_token_is_its_users_alone_and_nobody_else_needs_one(self, cluster: tuple[Checkout, str]) -> None:
        checkout, url = cluster
        file = checkout.folder / "token"
        assert file.stat().st_mode & 0o777 == 0o600
        headers = {"Authorization": f"Bearer {file.read_text().strip()}"}
        asked = urllib.request.Request(f"{url}/api/session", headers=headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            assert json.load(answer)["scopes"] == ["admin"]
        assert get(url, "/api/session")["scopes"] == ["operate", "read", "submit"]

    def test_a_second_cluster_of_the_checkout_is_refused(self, cluster: tuple[Checkout, str]) -> None:
        checkout, url = cluster
        done = checkout.call("local", "--once")
        assert done.returncode == 5
        assert f"is already running: {url}" in done.stderr and "is in use" not in done.stderr

    def test_redis_is_closed_to_others(self, cluster: tuple[Checkout, str]) -> None:
        checkout, _ = cluster
        assert checkout.folder.stat().st_mode & 0o777 == 0o700
        assert (checkout.folder / "redis.conf").stat().st_mode & 0o777 == 0o600
        port = int((checkout.folder / "redis.conf").read_text().partition("port ")[2].split()[0])
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(b"PING\r\n")
            assert link.recv(64).startswith(b"-NOAUTH")

    def test_prometheus_scrapes_it_and_reports_a_worker_that_does_not_respond(
        self, cluster: tuple[Checkout, str], tmp_path: Path
    ) -> None:
        checkout, url = cluster
        printed = checkout.call("metrics", "--config").stdout
        configuration = tmp_path / "prometheus.yml"
        configuration.write_text(re.sub("[45]s$", "1s", printed, flags=re.MULTILINE))
        with prometheus(configuration) as ask_prometheus:
            until(lambda: "1" in [row["value"][1] for row in ask_prometheus("query?query=up")["result"]])
            worker = until(lambda: checkout.process("-m cpu_worker"))
            worker.suspend()
            try:
                pages = until(lambda: pending_runbooks(ask_prometheus("alerts"), "FewerWorkersThanWanted"))
            finally:
                worker.resume()
        assert pages == [f"{url}/docs/operations.html#fewerworkersthanwanted"]
        until(lambda: ready(url))

    @pytest.mark.parametrize(
        ("words", "name"),
        [("redis-server", "redis"), ("-m coordinator", "coordinator"), ("-m cpu_worker", "cpu-worker-1")],
    )
    def test_what_is_killed_comes_back_and_the_terminal_says_so(
        self, cluster: tuple[Checkout, str], words: str, name: str
    ) -> None:
        checkout, url = cluster
        killed = until(lambda: checkout.process(words))
        killed.kill()
        until(lambda: (found := checkout.process(words)) and found.pid != killed.pid)
        until(lambda: ready(url))
        until(lambda: (found := checkout.process(words)) and found.pid != killed.pid)
        until(lambda: f"{name} exited and is being restarted. Its log: .cluster/logs/{name}.log" in checkout.said())

    def test_jobs_outlive_a_restart(self, cluster: tuple[Checkout, str]) -> None:
        """The next cluster of the checkout lists the jobs of the earlier --once run."""
        _, url = cluster
        assert {job["type"] for job in get(url, "/api/jobs")["jobs"]} >= {"collatz", "thread"}

    def test_stop_ends_it_from_another_terminal(self, cluster: tuple[Checkout, str]) -> None:
        checkout, _ = cluster
        done = checkout.call("stop")
        assert done.returncode == 0, done.stderr
        assert not checkout.processes()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGHUP, 0), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_stopping_it_leaves_no_process_behind(checkout: Checkout, number: signal.Signals, code: int) -> None:
    with checkout.up("--workers", "2", "--no-runner") as (starter, url):
        until(lambda: get(url, "/api/status")["workers"]["ready"] == 2)
        starter.send_signal(number)
        assert starter.wait(60) == code
        until(lambda: not checkout.processes(), 60)


@pytest.mark.skipif(not shutil.which("setsid"), reason="setsid is part of Linux")
def test_where_tokens_are_needed_it_prints_a_link_that_logs_in_once(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = 'it\'s"100%(x)s";#=' + "k" * 32 + '"'
    monkeypatch.setenv("AUTH", "required")
    monkeypatch.setenv("SECRETS_KEY", key)
    with checkout.up() as (_, url):
        link = re.search(rf"Pages: {url}/#login=([A-Za-z0-9_-]+) ", checkout.said())
        assert link, checkout.said()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(url, "/api/status")
        assert checkout.call("status").returncode == 0, "the command finds the token"
        bearer = {"Authorization": f"Bearer {(checkout.folder / 'token').read_text().strip()}"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/api/secrets", headers=bearer), timeout=30) as answer:
            assert json.load(answer)["key"] == Keys([key]).current, "any character may be in a key"
        with_it, that_name_it = [], []
        for one in checkout.processes():
            with suppress(psutil.Error):  # the process has exited
                with_it += [one] * (one.environ().get("SECRETS_KEY") == key)
                that_name_it += [one] * (key in " ".join(one.cmdline()))
        assert with_it and not that_name_it
        assert not checkout.process("-m cpu_worker").environ()["SECRETS_KEY"]
        login = urllib.request.Request(
            f"{url}/api/login", json.dumps({"code": link[1]}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(login, timeout=30) as answer:
            assert json.load(answer)["scopes"] == ["admin"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(login, timeout=30)
        assert not [log for log in (checkout.folder / "logs").iterdir() if link[1] in log.read_text(errors="replace")]


#: Program that reports credentials that it can read in its own environment and in those of other processes.
NOSY = """
import os, pathlib
print(*[name for name in os.environ if "TOKEN" in name or "REDIS" in name or "KEY" in name], os.environ["HOME"])
parent = pathlib.Path(f"/proc/{os.getppid()}/environ")
print(b"tc_" in parent.read_bytes() if os.access(parent, os.R_OK) else False)
"""


def as_guest(url: str, theirs: str) -> None:
    """Submit a job without a token as in the specification, poll it, and fail to reach the job of a person."""

    def post(path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    parameters = {"thread_count": 1000, "max_depth": 10, "batch_size": 256}
    snippet = {"type": "thread", "priority": "high", "gpu_preferred": True, "parameters": parameters}
    job = post("/api/submit", snippet)["job_id"]
    until(lambda: get(url, f"/api/jobs/{job}")["state"] == "done")
    assert get(url, f"/api/jobs/{job}/result")["result"]
    with urllib.request.urlopen(f"{url}/api/jobs/{job}/events", timeout=30) as events:
        assert b"event: done" in events.read(), "the stream ends with the job"
    for path, code in ((f"/api/jobs/{theirs}", 404), (f"/api/jobs/{theirs}/events", 404), ("/api/events", 401)):
        with pytest.raises(urllib.error.HTTPError, match=str(code)):
            get(url, path)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        post("/api/submit", {"type": "command", "parameters": {"argv": ["id"], "count": 1}})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")
def test_a_runner_runs_programs_and_nobody_without_a_token_has_any_run(checkout: Checkout) -> None:
    with checkout.up("--workers", "1") as (starter, url):
        assert "cluster run --no-files -- echo hello" in checkout.said()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(url, "/api/status")
        as_guest(url, checkout.cluster("submit", "command", "--no-files", "--", "true").stdout.strip())
        assert (checkout.folder / "token").stat().st_mode & 0o777 == 0o600
        assert checkout.cluster("run", "--no-files", "--", "echo", "hello").stdout == "hello\n"
        named, parents = checkout.cluster("run", "--no-files", "--", "python3", "-c", NOSY).stdout.splitlines()
        assert named.startswith(str(checkout.folder / "runner")) and parents == "False"
        killed = until(lambda: checkout.process("-m deploy.local.runner"))
        assert not [text for text in killed.environ().values() if text.startswith("tc_")]
        killed.kill()
        assert checkout.cluster("run", "--no-files", "--", "echo", "again").stdout == "again\n"
        words = f"sleep 86400.{starter.pid}"
        with checkout.cluster_process("run", "--no-files", "--", "sh", "-c", words) as client:
            until(lambda: running(words))
            starter.kill()
            starter.wait(30)
            until(lambda: not checkout.processes() and not running(words))
            client.kill()


def running(words: str) -> bool:
    """Return True if a process with this command line is running."""
    return any(words == " ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))


def test_a_terminal_that_was_closed_does_not_keep_it_from_being_stopped(checkout: Checkout) -> None:
    (checkout.folder / "url").unlink(missing_ok=True)  # a file of a killed starter proves nothing
    ours, theirs = os.openpty()
    command = checkout.command("local", "--port", str(free_port()), "--no-samples")
    # setsid makes this terminal the controlling terminal of the command, so closing the terminal hangs it up.
    starter = subprocess.Popen(["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    until((checkout.folder / "url").exists, START_SECONDS)
    os.close(ours)
    starter.wait(60)
    until(lambda: not checkout.processes(), 60)
    assert not (checkout.folder / "url").exists()


def test_what_a_killed_guard_left_is_ended_by_the_next_command(checkout: Checkout) -> None:
    with checkout.up() as (starter, _):
        guard = until(lambda: checkout.process("deploy.local.processes"))
        supervisor = guard.parent()
        assert supervisor
        # Stop the starter and the supervisor, so that neither can react to the other's death.
        for each in (starter, supervisor):
            each.send_signal(signal.SIGSTOP)
        for each in (guard, supervisor, starter):
            each.kill()
        starter.wait(10)
        assert checkout.processes()
        done = checkout.call("stop")
        assert "of an earlier run" in done.stderr
        assert not checkout.processes()


def test_a_part_that_does_not_come_up_is_shown_with_its_log(checkout: Checkout) -> None:
    module = checkout.path / "coordinator" / "__main__.py"
    kept = module.read_text()
    module.write_text("raise SystemExit('the coordinator cannot read its mind')\n")
    try:
        done = checkout.call("local", "--no-samples", "--port", str(free_port()))
    finally:
        module.write_text(kept)
    assert done.returncode == 1
    assert "coordinator exited 3 times before it was ready" in done.stderr
    assert "The end of .cluster/logs/coordinator.log" in done.stderr
    assert "cannot read its mind" in done.stderr
    assert not checkout.processes()
