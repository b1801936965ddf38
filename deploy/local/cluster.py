"""The local cluster of this checkout: `python -m deploy.local run|stop|status`, behind ./deploy-cluster.sh."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil

from deploy.local import gpus, processes, supervision
from deploy.local.processes import Run
from deploy.local.supervision import Shape
from jobs import exposure, settings

CHECKOUT = settings.LOCAL_FOLDER.parent
FOLDER = settings.LOCAL_FOLDER

# Exit codes; `./deploy-cluster.sh help` lists them.
OK, FAILED, USAGE, MISSING, NOT_READY, RUNNING, PORT_TAKEN, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130

#: Kernels are compiled at the first start.
READY_SECONDS = 300.0
#: A program that ended this often before all were ready will not come up.
GIVE_UP_AFTER = 3
#: More than a worker takes to commit what it has.
STOP_SECONDS = 40.0

SAMPLES = (
    ("collatz", "--start-number", "1", "--number-count", "1000000000"),
    ("thread", "--seed", "1"),
)


class Trouble(Exception):
    """Something the user must know: what, why and the next command; and the exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Stopped(BaseException):
    """A signal asked to stop. Not an Exception, so that nothing swallows it."""


def say(message: str = "") -> None:
    """On stderr; a terminal that was closed does not keep the cluster from being stopped."""
    with suppress(OSError):
        print(message, file=sys.stderr, flush=True)


# -- ports and lanes --------------------------------------------------------------------------------------------------


def free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def any_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def next_free(host: str, wanted: int, what: str, taken: tuple[int, ...] = ()) -> int:
    """`wanted`, or the next one that is free, said plainly."""
    for port in range(wanted, min(wanted + 100, 65536)):
        if port not in taken and free(host, port):
            if port != wanted:
                say(f"Port {wanted} is taken; {what} uses {port}.")
            return port
    raise Trouble(PORT_TAKEN, f"no port from {wanted} to {wanted + 99} is free for {what}; choose one with --port.")


def api_port(chosen: settings.Settings, given: int | None) -> int:
    if given is None and "coordinator_port" in chosen.model_fields_set:
        given = chosen.coordinator_port
    if given is None:
        return next_free(chosen.bind, chosen.coordinator_port, "the cluster")
    if not free(chosen.bind, given):
        raise Trouble(
            PORT_TAKEN,
            f"port {given} is taken by another program or may not be used."
            f" Choose another: ./deploy-cluster.sh local --port {given + 1}; or leave --port away for a free one.",
        )
    return given


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split(total: int, workers: int) -> tuple[int, ...]:
    """Cores dealt out to workers, at least one each."""
    return tuple(max(1, total // workers + (number < total % workers)) for number in range(workers))


def shape(chosen: settings.Settings, port: int | None, workers: int) -> Shape:
    try:
        server = supervision.redis_server()
    except supervision.NoRedis as error:
        raise Trouble(
            MISSING,
            f"no Redis server: {error}.\n  Install one (Debian, Ubuntu: sudo apt install redis-server; Fedora: sudo dnf"
            " install redis; macOS: brew install redis), then run the same command again.",
        ) from error
    api = api_port(chosen, port)
    metrics = chosen.metrics_port and next_free(chosen.bind, chosen.metrics_port, "the metrics", taken=(api,))
    lanes = (chosen.worker_threads,) * workers if chosen.worker_threads else split(cores(), workers)
    return Shape(
        redis_server=server, redis_port=any_port(), port=api, metrics_port=metrics, lanes=lanes,
        gpus=gpu_workers(chosen), pages=pages(chosen),
    )  # fmt: skip


def gpu_workers(chosen: settings.Settings) -> int:
    try:
        count, told = gpus.usable(chosen)
    except gpus.NoGpus as error:
        raise Trouble(MISSING, str(error)) from error
    if told:
        say(told)
    return count


def pages(chosen: settings.Settings) -> str:
    """Where the coordinator finds the pages, from the checkout; empty when they are not built."""
    where = chosen.pages_dir or "web/dist"
    return where if (CHECKOUT / where / "index.html").is_file() else ""


# -- a run ------------------------------------------------------------------------------------------------------------


class Local:
    """A local cluster that is being run; ends with its `with` block."""

    def __init__(self, chosen: settings.Settings, shape: Shape) -> None:
        self.shape = shape
        self.run = Run.new(FOLDER)
        host = "127.0.0.1" if chosen.bind in ("0.0.0.0", "::", "") else chosen.bind
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{shape.port}"
        self._token = chosen.cluster_token
        # A GPU that does not work must not keep a cluster down that was not asked to have one.
        self._gpus_needed = chosen.gpu_enabled == "true"
        self._log = FOLDER / "logs" / "supervisord.log"
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._told: Counter[str] = Counter()
        # Only this machine is asked: a proxy set for the internet must not catch it.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __enter__(self) -> Local:
        written = supervision.write(self.shape, self.run)
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        command = self.run.command(
            sys.executable, "-m", "supervisor.supervisord", "-c", f"{FOLDER.name}/{written.name}"
        )
        # A session of its own: signals of the terminal reach this process only, which then stops supervisord.
        self._supervisor = subprocess.Popen(
            command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, self._hurry)
        (FOLDER / "url").unlink(missing_ok=True)
        say("Stopping ...")
        if self._supervisor and self._supervisor.poll() is None:
            self._supervisor.terminate()
            try:
                self._supervisor.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                say("Some processes did not stop in time; ending them.")
        processes.sweep(self.run.mark)
        say("Stopped. Jobs and results are kept in .cluster for the next start.")

    def _hurry(self, *_: object) -> None:
        processes.sweep(self.run.mark, grace=0)

    # -- readiness

    def wait_ready(self) -> None:
        """Polls until the API answers and every worker is ready; Trouble with the log of what does not come up."""
        started = said_at = time.monotonic()
        said = ""
        while (missing := self._missing()) is not None:
            now = time.monotonic()
            if now - started > READY_SECONDS:
                raise Trouble(NOT_READY, f"not ready after {READY_SECONDS:.0f} s: {missing}.\n{self._tails()}")
            if missing != said or now - said_at > 15:
                say(f"  {now - started:4.0f} s  {missing}")
                said, said_at = missing, now
            self._check_alive()
            time.sleep(0.1)
        (FOLDER / "url").write_text(f"{self.url}\n")
        say(f"Ready after {time.monotonic() - started:.1f} s: {self.url}")

    def _missing(self) -> str | None:
        """What is still waited for, or None."""
        try:
            self._get("/ready")
        except (OSError, ValueError):
            return "waiting for Redis and the coordinator"
        try:
            ready = int(self._get("/api/status")["workers"]["ready"])
        except (OSError, ValueError):
            return "waiting for the coordinator's status"
        wanted = len(self.shape.lanes) + self.shape.gpus * self._gpus_needed
        return None if ready >= wanted else f"{ready} of {wanted} workers ready; the first start compiles the kernels"

    def _get(self, path: str) -> Any:
        request = urllib.request.Request(f"{self.url}{path}")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        with self._opener.open(request, timeout=5) as answer:
            return json.load(answer)

    def _check_alive(self) -> None:
        if self._supervisor is None or self._supervisor.poll() is not None:
            raise Trouble(FAILED, f"supervisord ended before the cluster was ready.\n{tail(self._log)}")
        for name, times in self._ended().items():
            log = FOLDER / "logs" / f"{name}.log"
            if times >= GIVE_UP_AFTER and (self._gpus_needed or not name.startswith("gpu-worker")):
                raise Trouble(FAILED, f"{name} ended {times} times before it was ready.\n{tail(log)}")
            if times > self._told[name]:
                self._told[name] = times
                say(f"  {name} ended; it is started again. Its log: {log.relative_to(CHECKOUT)}")

    def _ended(self) -> Counter[str]:
        """How often each program ended in this run, from supervisord's log."""
        if not self._log.exists():
            return Counter()
        with self._log.open("rb") as file:
            file.seek(self._log_start)
            text = file.read().decode(errors="replace")
        return Counter(re.findall(r" exited: (\S+) ", text))

    def _tails(self) -> str:
        return "\n".join(tail(log, 8) for log in sorted((FOLDER / "logs").glob("*.log")) if log.stem != "guard")

    # -- use

    def submit(self, sample: tuple[str, ...], *, as_json: bool) -> bool:
        """Submits one sample and waits for it; True when it is done. With `as_json`, one line on stdout."""
        say(f"$ cluster submit {' '.join(sample)} --wait{' --json' if as_json else ''}")
        flags = ("--wait", "--json") if as_json else ("--wait",)
        command = self.run.command(".venv/bin/cluster", "submit", *sample, *flags, CLUSTER_URL=self.url)
        with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE if as_json else None, text=True) as asked:
            try:
                answer, _ = asked.communicate()
            except Stopped:
                asked.terminate()
                raise
        if not as_json:
            return asked.returncode == 0
        try:
            job = json.loads(answer)
        except ValueError:
            say(f"error: the command answered with exit code {asked.returncode} and no JSON object: {answer[:500]!r}")
            return False
        print(json.dumps(job, separators=(",", ":"), ensure_ascii=False), flush=True)
        return bool(asked.returncode == 0 and job.get("state") == "done")

    def _pages(self) -> str:
        if not self.shape.pages:
            return "There are no pages: they could not be built (deploy/pages.sh says why)."
        return f"Pages: {self.url}/  {self.url}/collatz.html  {self.url}/cluster.html"

    def stay(self) -> NoReturn:
        """Until a signal, or until supervisord is gone."""
        say(f"""
The cluster is up: {self.url}   (API description: {self.url}/api/docs)
{self._pages()}
  .venv/bin/cluster status
  .venv/bin/cluster submit collatz --start-number 1 --number-count 1000000000 --wait
  .venv/bin/cluster submit thread --seed 1 --wait
Logs: .cluster/logs    Stop: Ctrl-C here, or ./deploy-cluster.sh stop""")
        assert self._supervisor is not None
        code = self._supervisor.wait()
        raise Trouble(FAILED, f"supervisord ended by itself with {code}.\n{tail(self._log)}")


def tail(log: Path, lines: int = 20) -> str:
    """The end of a log, and where it is."""
    if not log.exists():
        return f"There is no {log.relative_to(CHECKOUT)} yet."
    text = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"The end of {log.relative_to(CHECKOUT)}:", *(f"  {line}" for line in text)])


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _stop(*_: object) -> NoReturn:
    """A closed terminal sends its signal twice: the second must not break off the stopping."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise Stopped


@contextmanager
def alone() -> Iterator[None]:
    """Holds the checkout's lock; Trouble when a cluster runs already. What a killed one left is ended first."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    FOLDER.chmod(0o700)
    held = processes.lock(FOLDER)
    if held is None:
        raise Trouble(
            RUNNING, f"a local cluster of this checkout runs already: {address()}\n  Stop it: ./deploy-cluster.sh stop"
        )
    left = processes.sweep(f"@{FOLDER}")
    if left:
        say(f"Ended {left} processes that an earlier run left behind.")
    (FOLDER / "url").unlink(missing_ok=True)
    os.ftruncate(held, 0)
    os.pwrite(held, str(os.getpid()).encode(), 0)
    try:
        yield
    finally:
        os.close(held)


def address() -> str:
    left = FOLDER / "url"
    return left.read_text().strip() if left.is_file() else "it is starting or stopping"


def check_exposure(chosen: settings.Settings) -> None:
    """Before anything starts: the coordinator would refuse the same, and be started again and again."""
    try:
        exposure.check(chosen)
    except exposure.Exposed as error:
        raise Trouble(USAGE, str(error)) from error


def run(port: int | None, workers: int, *, once: bool, samples: bool) -> int:
    for number in STOP_SIGNALS:
        signal.signal(number, _stop)
    chosen = settings.load()
    check_exposure(chosen)
    up = False
    try:
        with alone(), Local(chosen, shape(chosen, port, workers)) as local:
            threads = "+".join(map(str, local.shape.lanes))
            on_gpus = f" and {local.shape.gpus} GPU worker(s)" if local.shape.gpus else ""
            say(f"Starting Redis, a coordinator, {workers} CPU worker(s) with {threads} lanes{on_gpus} ...")
            local.wait_ready()
            fine = [local.submit(sample, as_json=once) for sample in (SAMPLES if samples else ())]
            if once:
                return OK if all(fine) else FAILED
            up = True
            local.stay()
    except Stopped:
        return OK if up else INTERRUPTED


def _starter() -> psutil.Process | None:
    """The process that holds the lock, by the number it wrote there; None when that is not one of ours."""
    try:
        found = psutil.Process(int((FOLDER / "lock").read_text()))
        ours = "deploy.local" in found.cmdline() and Path(found.cwd()) == CHECKOUT
    except (psutil.Error, OSError, ValueError):
        return None
    return found if ours else None


def running() -> bool:
    if not FOLDER.is_dir():
        return False
    held = processes.lock(FOLDER)
    if held is not None:
        os.close(held)
    return held is None


def stop() -> int:
    """Stops the cluster that runs in another terminal, or what one left behind."""
    if not running():
        left = processes.sweep(f"@{FOLDER}")
        say(
            f"Ended {left} processes that an earlier run left behind."
            if left
            else "No local cluster of this checkout runs."
        )
        return OK
    starter = _starter()
    if starter is None:
        raise Trouble(
            FAILED, "the process that runs the cluster was not found; look at its terminal and press Ctrl-C there."
        )
    starter.terminate()
    held = processes.lock(FOLDER, patience=STOP_SECONDS + 20)
    if held is None:
        raise Trouble(FAILED, f"it still runs (process {starter.pid}); its logs are in .cluster/logs.")
    os.close(held)
    say("Stopped.")
    return OK


def status() -> int:
    if not running():
        say("No local cluster of this checkout runs. Start one: ./deploy-cluster.sh local")
        return FAILED
    say(f"A local cluster of this checkout runs: {address()}")
    return subprocess.run([".venv/bin/cluster", "status"], cwd=CHECKOUT, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.local")
    parser.add_argument("command", choices=("run", "stop", "status"))
    parser.add_argument("--port", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--no-samples", action="store_true")
    given = parser.parse_args()
    try:
        if given.command == "run":
            return run(given.port, given.workers, once=given.once, samples=not given.no_samples)
        return stop() if given.command == "stop" else status()
    except Trouble as trouble:
        say(f"error: {trouble}")
        return trouble.code


if __name__ == "__main__":
    sys.exit(main())
