"""Start and stop of the local cluster: start supervisord, wait until all workers are ready, and stop everything."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from deploy.local import (
    admin_token,
    cluster_programs,
    data_version,
    notification,
    port_list,
    processes,
    program_logs,
    release_file,
    runner_token,
    secrets_key,
    supervision,
    user_contexts,
)
from deploy.local.api import api_of_settings
from deploy.local.joining import https_coordinator
from deploy.local.listeners import HandOver
from deploy.local.outcome import FAILED, NOT_READY, STOP_SIGNALS, CommandError, say
from deploy.local.processes import Run
from deploy.local.shape import Shape
from jobs.network import exposure
from jobs.settings import CHECKOUT, LOCAL_FOLDER, Settings
from jobs.store.server import connection
from threads_cluster.settings import IS_INSTALLED

#: Maximum number of seconds until all workers and runners are ready.
READY_SECONDS = 300.0
#: Timeout in seconds of one readiness check. The port accepts connections before the coordinator is running.
READY_TIMEOUT_SECONDS = 1.0
#: Number of exits of a program before the cluster is ready, after which the start fails.
MAX_EXITS = 3
#: Interval in seconds after which an unchanged status message is printed again.
REPEAT_SECONDS = 15.0
#: Interval in seconds between checks for programs that have exited.
POLL_SECONDS = 2.0
#: The `cluster` command of this checkout.
CLUSTER = ".venv/bin/cluster"
#: Small language model that the start text offers, 0.6 GB.
MODEL = "hf://Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf"
#: File from which clients read the URL of the running cluster.
ADDRESS = LOCAL_FOLDER / "url"


class LocalCluster:
    """Running local cluster. It stops at the end of its `with` block."""

    def __init__(self, settings: Settings, shape: Shape) -> None:
        self.shape = shape
        self.run = Run.new(LOCAL_FOLDER)
        self.api = api_of_settings(settings, shape.port)
        # If a GPU is broken, the cluster starts anyway, unless GPU_ENABLED=true.
        self._grpc_port = settings.grpc_port
        self._token_needed = shape.runner or exposure.needs_token(settings)
        self._gpus_needed = settings.gpu_enabled == "true"
        self._secrets_key = ",".join(settings.secrets_keys())
        self._admin_token = ""
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._hand_over: HandOver | None = None
        self._log_start = 0
        #: Number of exits of each program that were reported to the user.
        self._said_exits: Counter[str] = Counter()

    def __enter__(self) -> LocalCluster:
        runner_token.delete_token()
        passwords = cluster_programs.passwords()
        self._redis_url = cluster_programs.redis_url(self.shape, "coordinator", passwords["coordinator"])
        release_file.select(Path(sys.executable), CHECKOUT)
        configuration = supervision.write(self.shape, self.run, passwords)
        self._log_start = program_logs.log_size()
        if self.shape.listeners:
            self._hand_over = HandOver(self.shape.listeners)
        key = self._secrets_key or secrets_key.ensure()
        self._supervisor = supervision.start(configuration, self.run, SECRETS_KEY=key)
        return self

    def __exit__(self, *_: object) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, self._hurry)
        for file in (ADDRESS, port_list.FILE):
            file.unlink(missing_ok=True)
        say("Stopping ...")
        if self._hand_over:
            self._hand_over.close()
        supervision.end(self._supervisor, self.run)
        say("Stopped. Jobs and results remain in .cluster for the next start.")

    def _hurry(self, *_: object) -> None:
        processes.stop_marked(self.run.mark, grace=0)

    # -- readiness ----------------------------------------------------------------------------------------------------

    def wait_ready(self) -> None:
        """Wait until the API answers and every worker is ready.

        Raises CommandError with the logs if a worker does not become ready.
        """
        started = said_at = time.monotonic()
        said = ""
        while (missing := self._missing()) is not None:
            now = time.monotonic()
            if now - started > READY_SECONDS:
                raise CommandError(
                    NOT_READY,
                    f"the cluster was not ready after {READY_SECONDS:.0f} s. {missing}\n{program_logs.read_tails()}",
                )
            if missing != said or now - said_at > REPEAT_SECONDS:
                say(f"  {now - started:4.0f} s  {missing}")
                said, said_at = missing, now
            self._check_programs()
            time.sleep(0.1)
        data_version.record()
        port_list.write(self.list_ports())
        ADDRESS.write_text(f"{self.api.url}\n")
        user_contexts.keep_local(self.api.url)
        say(f"Ready after {time.monotonic() - started:.1f} s: {self.api.url}")

    def list_ports(self) -> dict[str, int]:
        """Return all ports that processes of this cluster use, by name."""
        https = https_coordinator.load_endpoint()
        return {
            "API and pages": self.shape.port,
            "Redis": self.shape.redis_port,
            "metrics": self.shape.metrics_port,
            "gRPC": self._grpc_port,
            https_coordinator.PORT_NAME: https.port if https else 0,
        }

    def _missing(self) -> str | None:
        """Describe which parts of the cluster are not ready. Return None if all parts are ready."""
        try:
            self.api.get("/ready", timeout=READY_TIMEOUT_SECONDS)
        except (OSError, ValueError):
            return "Waiting for Redis and the coordinator."
        try:
            self._admin_token = self._admin_token or admin_token.ensure(self._redis_url)
            self.api.token = self.api.token or self._admin_token
            if self.shape.runner:
                runner_token.ensure(self._redis_url)
            ready = int(self.api.get("/api/status")["workers"]["ready"])
        except (OSError, ValueError, *connection.Unreachable):
            return "Waiting for the coordinator's status."
        wanted = self.shape.workers - self.shape.gpus * (not self._gpus_needed)
        return None if ready >= wanted else f"{ready} of {wanted} workers and runners are ready."

    def _check_programs(self) -> None:
        """Report programs that exited. Raises CommandError if supervisord exited, or if a program exits repeatedly."""
        if self._supervisor is None or self._supervisor.poll() is not None:
            tail = program_logs.read_tail(program_logs.SUPERVISOR)
            raise CommandError(FAILED, f"supervisord exited before the cluster was ready.\n{tail}")
        for name, times in program_logs.count_exits(self._log_start).items():
            # The HTTPS endpoint is only for other machines, so the cluster works without it.
            if times >= MAX_EXITS and name != "door" and (self._gpus_needed or not name.startswith("gpu-worker")):
                log = program_logs.FOLDER / f"{name}.log"
                raise CommandError(
                    FAILED, f"{name} exited {times} times before it was ready.\n{program_logs.read_tail(log)}"
                )
        self._say_exits()

    def _say_exits(self) -> None:
        """Print which programs have exited since the last call of this method."""
        for name, times in program_logs.count_exits(self._log_start).items():
            if times > self._said_exits[name]:
                self._said_exits[name] = times
                log = program_logs.relative_path(program_logs.FOLDER / f"{name}.log")
                say(f"  {datetime.now():%H:%M:%S}  {name} exited and is being restarted. Its log: {log}")

    # -- running cluster -----------------------------------------------------------------------------------------------

    def stay(self) -> NoReturn:
        """Wait until a signal raises StopRequested. Raises CommandError if supervisord exits first."""
        # The journal of systemd has other readers, who must not get the login link.
        if not notification.notify_ready():
            say("\n".join(self.describe_start()))
        assert self._supervisor is not None
        while (code := self._supervisor.poll()) is None:
            self._say_exits()
            time.sleep(POLL_SECONDS)
        tail = program_logs.read_tail(program_logs.SUPERVISOR)
        raise CommandError(FAILED, f"supervisord exited unexpectedly with code {code}.\n{tail}")

    def describe_start(self) -> list[str]:
        """Return the lines that tell a new user what to do first, and where everything is."""
        return [
            "",
            f"The cluster is up. Begin in a second terminal{'' if IS_INSTALLED else ', in this folder'}:",
            *(f"  {purpose:<16}{command}" for purpose, command in self._first_commands().items()),
            self._pages(),
            *self._describe_kernels(),
            *([f"Spans of jobs are sent to {self.shape.span_endpoint}"] if self.shape.span_endpoint else []),
            f"Ports: {port_list.describe()}",
            f"State: {CLUSTER} status   Logs: .cluster/logs   Stop: Ctrl-C here, or ./deploy-cluster.sh stop",
        ]

    def _first_commands(self) -> dict[str, str]:
        """Return the commands for the first use of each part of the cluster, by their purpose."""
        kernels = {"submit a kind:": f"{CLUSTER} submit collatz --start-number 1 --number-count 1e9 --wait"}
        if not self.shape.runner:
            return kernels
        download = f"{CLUSTER} model download qwen --source {MODEL} --wait"
        return {
            "run a program:": f"{CLUSTER} run --no-files -- echo hello",
            **kernels,
            "serve a model:": f"{download} && {CLUSTER} serve qwen --wait",
        }

    def _describe_kernels(self) -> list[str]:
        """Return a line about the kinds whose kernels workers are compiling, or nothing if there are none."""
        workers = self.api.get("/api/workers")["workers"]
        kinds = " and ".join(sorted({kind for worker in workers for kind in worker.get("compiling", ())}))
        return [f"Workers are compiling the kernels of {kinds}; jobs that use them start after that."] if kinds else []

    def _pages(self) -> str:
        if not self.shape.pages:
            return "The web pages are missing because their build failed; run deploy/pages.sh to see the error."
        if self._token_needed:
            code = self.api.post("/api/login-codes")
            return f"Pages: {self.api.url}{code['path']}   (logs in once; new link: {CLUSTER} login --link)"
        return f"Pages: {self.api.url}/"
