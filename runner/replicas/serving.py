"""Run of a replica of a service: a lease whose one program stays up and answers on a port of this host."""

from __future__ import annotations

import ipaddress
import logging
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from jobs.kinds.service import launch
from jobs.network import tunnel
from jobs.settings import usable_cores
from jobs.worker.lanes import Task
from runner.files.environments import is_here
from runner.files.workplace import Workplace
from runner.host import Host
from runner.programs import processes
from runner.programs.orders import Order, ProgramEnd
from runner.programs.recorder import Recorder
from runner.programs.report import Failure
from runner.replicas.probing import Endpoint, Probe, endpoint
from runner.run import LeaseLost, Run

log = logging.getLogger(__name__)

#: Name of the file, in the program's folder, that lists the packages of its Python environment.
PACKAGES = ".cluster-packages.txt"
#: Seconds between two looks whether the replica that leads is ready.
LOOK_SECONDS = 0.5


class ServiceRun(Run):
    """One lease of a replica. It ends when the program does, and the lease with it."""

    def __init__(self, host: Host, place: Workplace, task: Task) -> None:
        super().__init__(host, place, task)
        self.spec = task.facts.spec
        self._at: Endpoint | None = None
        self._probe: Probe | None = None
        self._python = sys.executable

    def _prepare(self) -> Failure | None:
        if not self.spec["packages"] or is_here(self.spec["module"]):
            return super()._prepare()
        self._command = replace(self._command, python=PACKAGES)
        return super()._prepare()

    def _make_environment(self) -> Failure | None:
        (self.place.folder.path / PACKAGES).write_text(self.spec["packages"])
        failed = super()._make_environment()
        self._python = f"{self._around.python_bin}/python"
        return failed

    def _order(self, unit: int) -> Order:
        self._at = at = endpoint(self.host.address)
        lead = self._lead(at) if self.spec["group"] else {}
        filled = {"port": str(at.port), "address": at.address, "python": self._python}
        own = {"CLUSTER_PORT": filled["port"], "CLUSTER_ADDRESS": at.address, "CLUSTER_KEY": at.key}
        own["CLUSTER_CPUS"] = str(usable_cores())
        order = super()._order(unit)
        return replace(order, environment=order.environment | own | lead)

    def _lead(self, at: Endpoint) -> dict[str, str]:
        """Return where the replica that leads answers, once it is ready. Raises LeaseLost, ValueError."""
        until = time.monotonic() + self.spec["start_timeout_seconds"]
        while True:
            found = self._persist(self.files.lead)
            if found["leads"]:
                return _format_address(at.address, at.port, at.key)
            if found["state"] == "ready":
                self._check_reached(found)
                return _format_address(found["address"], found["port"], found["key"])
            self._say_waiting(at, found["job_id"])
            if time.monotonic() > until:
                raise ValueError(f"{found['job_id']}, which leads, was not ready within start_timeout_seconds")
            self._pause()

    def _check_reached(self, found: Mapping[str, Any]) -> None:
        """Raise ValueError for a leader that answers on another host, and there alone."""
        if found["host"] != self.host.name and ipaddress.ip_address(found["address"]).is_loopback:
            where = f"{found['job_id']}, which leads, answers on {found['host']} alone"
            raise ValueError(f"{where}: set SERVICE_ADDRESS of its runner to an address that this host reaches")

    def _say_waiting(self, at: Endpoint, job: str) -> None:
        try:
            self.report(at, "starting", f"waits for {job}, which leads, to be ready")
        except Exception as error:
            log.info("what a replica waits for is not told: %s", error)

    def _pause(self) -> None:
        """Wait until the next look. Raises LeaseLost once the lease must be let go."""
        if self._must_stop():
            raise LeaseLost("stopped while it waited for the replica that leads")
        time.sleep(LOOK_SECONDS)

    def _arguments(self, unit: int, item: str | None) -> list[str]:
        assert self._at
        filled = {"port": str(self._at.port), "address": self._at.address, "python": self._python}
        return launch.arguments(self.spec, filled)

    def _run_program(self, order: Order, sink: Callable[[int, bytes], None]) -> ProgramEnd:
        if self._at is None or "CLUSTER_KEY" not in order.environment:  # it makes the environment, or tries the host
            return super()._run_program(order, sink)
        report = partial(self.report, self._at)
        self._probe = Probe(self._at, self.spec["health"], self.spec["start_timeout_seconds"], report)
        self._probe.start()
        try:
            with self._open_tunnel(self._at):
                return super()._run_program(order, sink)
        finally:
            self._probe.stop()

    def _open_tunnel(self, at: Endpoint) -> AbstractContextManager[None]:
        """Have coordinators reach a place while the context lasts."""
        return self.host.tunnels.to(at.address, at.port) if self.host.tunnels else nullcontext()

    def report(self, at: Endpoint, state: str, why: str) -> None:
        # Those of a group are told where they reach each other, besides.
        by_tunnel_alone = self.host.tunnels is not None and not self.spec["group"]
        address = tunnel.ADDRESS if by_tunnel_alone else at.address
        self.files.replica(
            state=state,
            why=why,
            address=address,
            port=at.port,
            key=at.key,
            host=self.host.name,
            memory_bytes=self._memory(),
            devices=self._devices(),
        )

    def _memory(self) -> int:
        return processes.memory_bytes(processes.descendants(self.place.slot.pid))

    def _devices(self) -> str:
        gpus = self.host.ledger.gpus(self.place.slot.name)
        return ";".join(f"{gpu.name} {gpu.uuid}".replace(";", ",") for gpu in gpus) or "cpu"

    def _look(self) -> float | None:
        grace = super()._look()
        if grace is None and self._probe and self._probe.fault:
            grace = self._command.grace_seconds
        if grace is not None and self._probe:
            self._probe.stop()
        return grace

    def _start_unit(self) -> tuple[ProgramEnd, Recorder, Failure | None]:
        ended, recorder, failed = super()._start_unit()
        if ended.reason == "stopped" and self._probe and self._probe.fault and not self._must_stop():
            ended = replace(ended, reason="unhealthy")
        return ended, recorder, failed

    def _take(self, ended: ProgramEnd, recorder: Recorder) -> Failure | None:
        """Keep what it wrote, and return why it has died: what stays up has no good end."""
        failed = super()._take(ended, recorder)
        if ended.reason == "unhealthy" and self._probe:
            return replace(failed or Failure(error=""), error=self._probe.fault, reason="unhealthy")
        if failed is not None:
            return failed
        seconds = round(ended.seconds, 3)
        self._forget_finished()
        return Failure(error="it ended by itself with exit code 0", exit=0, seconds=seconds, tail=recorder.tail())


def _format_address(address: str, port: int, key: str) -> dict[str, str]:
    return {"CLUSTER_LEAD_ADDRESS": address, "CLUSTER_LEAD_PORT": str(port), "CLUSTER_LEAD_KEY": key}
