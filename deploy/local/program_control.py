"""Lists, starts and stops single programs through the running cluster's supervisord."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from xmlrpc.client import Fault, dumps, loads

import httpx

from deploy.local import supervision
from deploy.local.outcome import FAILED, CommandError

_POLL_SECONDS = 0.05
#: Programs on which all others depend, and which therefore stop last, in this order.
_LAST = ("coordinator", "redis")


@dataclass(frozen=True, kw_only=True)
class ProgramState:
    """State of a program, as supervisord reports it."""

    name: str
    group: str
    #: For example RUNNING, STOPPING or STOPPED.
    state: str
    pid: int
    #: Text with the process ID and uptime, or with the time of the last stop.
    description: str

    @property
    def has_process(self) -> bool:
        """True if the program has a process, or will have one without a further call."""
        return self.state in ("STARTING", "RUNNING", "BACKOFF", "STOPPING")


def _call(method: str, *arguments: str | bool) -> Any:
    """Call a method of supervisord. Raises Fault, or CommandError if supervisord does not answer."""
    body = dumps(arguments, f"supervisor.{method}")
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=supervision.SOCKET), trust_env=False) as client:
            answer = client.post("http://supervisord/RPC2", content=body, headers={"Content-Type": "text/xml"})
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise CommandError(
            FAILED,
            f"supervisord does not answer ({error}).\n  Its log: .cluster/logs/supervisord.log",
        ) from error
    [result], _ = loads(answer.text)
    return result


def list_programs() -> dict[str, ProgramState]:
    """Return all programs of the cluster by name, including those that were never started."""
    return {
        row["name"]: ProgramState(
            name=row["name"],
            group=row["group"],
            state=row["statename"],
            pid=row["pid"],
            description=row["description"],
        )
        for row in _call("getAllProcessInfo")
    }


def stop(names: Container[str]) -> None:
    """Stop programs at the same time, and wait until their processes have exited. Raises CommandError."""
    deadline = time.monotonic() + supervision.STOP_SECONDS
    while running := [one for one in list_programs().values() if one.name in names and one.has_process]:
        if time.monotonic() > deadline:
            late = ", ".join(one.name for one in running)
            raise CommandError(FAILED, f"{late} did not stop in {supervision.STOP_SECONDS:.0f} s; see .cluster/logs.")
        _change("stopProcess", [one for one in running if one.state != "STOPPING"])
        time.sleep(_POLL_SECONDS)


def start(names: Container[str]) -> None:
    """Start programs that are not running. Programs with lower priorities start first."""
    _change("startProcess", [one for one in list_programs().values() if one.name in names and not one.has_process])


def _change(method: str, programs: list[ProgramState]) -> None:
    for program in programs:
        with suppress(Fault):  # The state of the program has changed since it was listed
            _call(method, f"{program.group}:{program.name}", False)


@contextmanager
def stopped_cluster(is_wanted: Callable[[str], bool]) -> Iterator[None]:
    """Stop all programs during a `with` block. Servers stop after the workers that write to them.

    After the block, also after an error, start the programs whose name `is_wanted` accepts.
    """
    programs = [name for name in list_programs() if name != "guard"]
    try:
        stop([name for name in programs if name not in _LAST])
        for server in _LAST:
            stop([server])
        yield
    finally:
        start([name for name in programs if is_wanted(name)])
