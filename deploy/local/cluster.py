"""One run of the local cluster: supervisord started, readiness awaited, everything stopped."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from datetime import datetime
from typing import NoReturn

from deploy.local import admin_token, processes, program_logs, runner_token, secrets_key, supervision
from deploy.local.api import Api
from deploy.local.listeners import HandOver
from deploy.local.outcome import FAILED, NOT_READY, STOP_SIGNALS, CommandError, say
from deploy.local.processes import Run
from deploy.local.shape import Shape
from jobs.network import exposure
from jobs.settings import LOCAL_FOLDER, Settings
from jobs.store.server import connection

#: Kernels are compiled at the first start.
READY_SECONDS = 300.0
#: Timeout of one readiness check, in seconds. The port accepts connections even if the coordinator never comes up.
READY_ANSWER_SECONDS = 1.0
#: A program that ended this often before all were ready will not come up.
GIVE_UP_AFTER = 3
#: How often the same state of waiting is said again.
SAY_AGAIN_SECONDS = 15.0
#: Seconds between two looks at what ended while the cluster is up.
LOOK_SECONDS = 2.0
#: What the pages are called; the first is the index.
PAGES = ("", "collatz.html", "kinds.html", "cluster.html")
#: Where clients find the address of the cluster that is up.
ADDRESS = LOCAL_FOLDER / "url"


class LocalCluster:
    """A local cluster that is being run; it ends with its `with` block."""

    def __init__(self, settings: Settings, shape: Shape) -> None:
        self.shape = shape
        self.run = Run.new(LOCAL_FOLDER)
        self.api = Api(settings, shape.port)
        # A GPU that does not work must not keep a cluster down that was not asked to have one.
        self._token_needed = shape.runner or exposure.needs_token(settings)
        self._gpus_needed = settings.gpu_enabled == "true"
        self._secrets_key = ",".join(settings.secrets_keys())
        self._admin_token = ""
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._hand_over: HandOver | None = None
        self._log_start = 0
        #: Exits of each program that the user has heard of.
        self._said_exits: Counter[str] = Counter()

    def __enter__(self) -> LocalCluster:
        runner_token.forget()
        passwords = supervision.passwords()
        self._redis_url = supervision.redis_url(self.shape, "coordinator", passwords["coordinator"])
        configuration = supervision.write(self.shape, self.run, passwords)
        self._log_start = program_logs.size()
        if self.shape.listeners:
            self._hand_over = HandOver(self.shape.listeners)
        key = self._secrets_key or secrets_key.ensure()
        self._supervisor = supervision.start(configuration, self.run, SECRETS_KEY=key)
        return self

    def __exit__(self, *_: object) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, self._hurry)
        ADDRESS.unlink(missing_ok=True)
        say("Stopping ...")
        if self._hand_over:
            self._hand_over.close()
        supervision.end(self._supervisor, self.run)
        say("Stopped. Jobs and results are kept in .cluster for the next start.")

    def _hurry(self, *_: object) -> None:
        processes.sweep(self.run.mark, grace=0)

    # -- readiness ----------------------------------------------------------------------------------------------------

    def wait_ready(self) -> None:
        """Wait until the API answers and every worker is ready.

        Raises CommandError with the log of what does not come.
        """
        started = said_at = time.monotonic()
        said = ""
        while (missing := self._missing()) is not None:
            now = time.monotonic()
            if now - started > READY_SECONDS:
                raise CommandError(
                    NOT_READY, f"not ready after {READY_SECONDS:.0f} s: {missing}.\n{program_logs.tails()}"
                )
            if missing != said or now - said_at > SAY_AGAIN_SECONDS:
                say(f"  {now - started:4.0f} s  {missing}")
                said, said_at = missing, now
            self._check_programs()
            time.sleep(0.1)
        ADDRESS.write_text(f"{self.api.url}\n")
        say(f"Ready after {time.monotonic() - started:.1f} s: {self.api.url}")

    def _missing(self) -> str | None:
        """Say what is still waited for; None when everything is ready."""
        try:
            self.api.get("/ready", timeout=READY_ANSWER_SECONDS)
        except (OSError, ValueError):
            return "waiting for Redis and the coordinator"
        try:
            self._admin_token = self._admin_token or admin_token.ensure(self._redis_url)
            self.api.token = self.api.token or self._admin_token
            if self.shape.runner:
                runner_token.ensure(self._redis_url)
            ready = int(self.api.get("/api/status")["workers"]["ready"])
        except (OSError, ValueError, *connection.Unreachable):
            return "waiting for the coordinator's status"
        wanted = self.shape.workers - self.shape.gpus * (not self._gpus_needed)
        return None if ready >= wanted else f"{ready} of {wanted} workers ready; the first start compiles the kernels"

    def _check_programs(self) -> None:
        """Report programs that ended. Raises CommandError when supervisord did, or one of them again and again."""
        if self._supervisor is None or self._supervisor.poll() is not None:
            tail = program_logs.read_tail(program_logs.SUPERVISOR)
            raise CommandError(FAILED, f"supervisord ended before the cluster was ready.\n{tail}")
        for name, times in program_logs.exits(self._log_start).items():
            # Without its door, which others use, the cluster works.
            if times >= GIVE_UP_AFTER and name != "door" and (self._gpus_needed or not name.startswith("gpu-worker")):
                log = program_logs.FOLDER / f"{name}.log"
                raise CommandError(
                    FAILED, f"{name} ended {times} times before it was ready.\n{program_logs.read_tail(log)}"
                )
        self._say_exits()

    def _say_exits(self) -> None:
        """Say which programs have ended since the last time."""
        for name, times in program_logs.exits(self._log_start).items():
            if times > self._said_exits[name]:
                self._said_exits[name] = times
                log = program_logs.relative_path(program_logs.FOLDER / f"{name}.log")
                say(f"  {datetime.now():%H:%M:%S}  {name} ended; it is started again. Its log: {log}")

    # -- up -----------------------------------------------------------------------------------------------------------

    def stay(self) -> NoReturn:
        """Stay until a signal raises StopRequested, or until supervisord is gone: then raise CommandError."""
        url = self.api.url
        say(f"""
The cluster is up: {url}   (API description: {url}/api/docs)
{self._pages()}
  .venv/bin/cluster status
  .venv/bin/cluster submit collatz --start-number 1 --number-count 1000000000 --wait
  .venv/bin/cluster submit thread --seed 1 --wait{self._first_program()}
Logs: .cluster/logs    Stop: Ctrl-C here, or ./deploy-cluster.sh stop""")
        assert self._supervisor is not None
        while (code := self._supervisor.poll()) is None:
            self._say_exits()
            time.sleep(LOOK_SECONDS)
        tail = program_logs.read_tail(program_logs.SUPERVISOR)
        raise CommandError(FAILED, f"supervisord ended by itself with {code}.\n{tail}")

    def _first_program(self) -> str:
        return "\n  .venv/bin/cluster run -- echo hello" if self.shape.runner else ""

    def _pages(self) -> str:
        if not self.shape.pages:
            return "There are no pages: they could not be built (deploy/pages.sh says why)."
        if self._token_needed:
            code = self.api.post("/api/login-codes")
            return f"Pages: {self.api.url}{code['path']}   (logs in once; another: .venv/bin/cluster login --link)"
        return "Pages: " + "  ".join(f"{self.api.url}/{page}" for page in PAGES)
