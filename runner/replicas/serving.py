"""Execution of a service's replica: a lease whose program listens on a port of this host until it is stopped."""

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
from runner.files.environments import has_module
from runner.files.working_directory import Workplace
from runner.host import Host
from runner.programs import processes
from runner.programs.guard_messages import Order, ProgramEnd
from runner.programs.recorder import Recorder
from runner.programs.report import Failure
from runner.replicas.probing import Endpoint, Probe, endpoint
from runner.run import LeaseLost, Run

log = logging.getLogger(__name__)

#: Name of the file in the working directory that lists the Python packages to install.
PACKAGES = ".cluster-packages.txt"
#: Interval in seconds at which a replica checks whether its group's leader is ready.
POLL_SECONDS = 0.5


class ServiceRun(Run):
    """Execution of a replica's lease. The lease ends when the program exits."""

    def __init__(self, host: Host, place: Workplace, task: Task) -> None:
        super().__init__(host, place, task)
        self.spec = task.facts.spec
        self._at: Endpoint | None = None
        self._probe: Probe | None = None
        self._python = sys.executable

    def _prepare(self) -> Failure | None:
        if not self.spec["packages"] or has_module(self.spec["module"]):
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
        """Wait until the leader of the replica's group is ready, and return its address. Raises LeaseLost and
        ValueError.
        """
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
                raise ValueError(f"the leader {found['job_id']} was not ready within start_timeout_seconds")
            self._pause()

    def _check_reached(self, found: Mapping[str, Any]) -> None:
        """Raise ValueError if another host runs the leader and the leader listens only on a loopback address."""
        if found["host"] != self.host.name and ipaddress.ip_address(found["address"]).is_loopback:
            where = f"the leader {found['job_id']} is reachable only on its own host {found['host']}"
            raise ValueError(
                f"{where}: set SERVICE_ADDRESS of the leader's runner to an address that this host can reach"
            )

    def _say_waiting(self, at: Endpoint, job: str) -> None:
        try:
            self.report(at, "starting", f"waiting for the leader {job} to be ready")
        except Exception as error:
            log.info("cannot report the state of a replica: %s", error)

    def _pause(self) -> None:
        """Wait before the next check. Raises LeaseLost if the lease has ended."""
        if self._must_stop():
            raise LeaseLost("the replica was stopped while it was waiting for the leader")
        time.sleep(POLL_SECONDS)

    def _arguments(self, unit: int, item: str | None) -> list[str]:
        assert self._at
        filled = {"port": str(self._at.port), "address": self._at.address, "python": self._python}
        return launch.arguments(self.spec, filled)

    def _run_program(self, order: Order, sink: Callable[[int, bytes], None]) -> ProgramEnd:
        if self._at is None or "CLUSTER_KEY" not in order.environment:  # This program is not the replica.
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
        """Open a tunnel through which coordinators reach an endpoint, for the duration of a `with` block."""
        return self.host.tunnels.to(at.address, at.port) if self.host.tunnels else nullcontext()

    def report(self, at: Endpoint, state: str, why: str) -> None:
        # The replicas of a group also need a network address to reach each other.
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
        """Store the program's output and return the failure of the replica. An exit with code 0 is also a failure."""
        failed = super()._take(ended, recorder)
        if ended.reason == "unhealthy" and self._probe:
            return replace(failed or Failure(error=""), error=self._probe.fault, reason="unhealthy")
        if failed is not None:
            return failed
        seconds = round(ended.seconds, 3)
        self._forget_finished()
        return Failure(error="the program exited with code 0", exit=0, seconds=seconds, tail=recorder.tail())


def _format_address(address: str, port: int, key: str) -> dict[str, str]:
    return {"CLUSTER_LEAD_ADDRESS": address, "CLUSTER_LEAD_PORT": str(port), "CLUSTER_LEAD_KEY": key}
