"""Simulated workers: they register, beat, lease and commit by the real functions, and compute nothing.

python -m benchmarks.load.simulated_workers URL WORKERS LEASE_SECONDS

A line on stdin is a new LEASE_SECONDS. Each second a line on stdout says what was done since the start, as JSON:
functions called, leases committed, jobs finished, errors, seconds of CPU, and the greatest delay of a wake-up in this
second. Each worker has one lane and one connection; a real one has a connection more for each lane, and one for bells.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import random
import sys
import time
from collections import Counter
from typing import Any, cast
from urllib.parse import urlsplit

import hiredis
import uvloop

from jobs import queues
from jobs.kinds import registry
from jobs.models import QUANTUM_SECONDS, Device
from jobs.partial_reader import GatheredPartials
from jobs.store import Store, keys
from jobs.store.server.connection import LibraryMissing, connect
from jobs.store.server.functions import LEASE_TTL_MS, SLOT_TTL_MS, WORKER_TTL_MS
from jobs.store.work import lease_tokens
from jobs.store.work.leases import HEARTBEAT_SECONDS
from jobs.worker.execution import FOLD_AT, GATHER_LIMIT
from jobs.worker.lane_loop import LINGER_SECONDS

#: Leases that make a job.
LEASES_A_JOB = 10
#: Seconds that a worker without work waits, as one that no bell wakes.
_IDLE_SECONDS = 2.0
_PARTIAL = b"x" * 200
FUNCTIONS = ("worker", "hold", "heartbeat", "next", "lease", "commit", "read", "fold", "finish")
_LISTENED = queues.for_worker(Device.CPU)


class Redis(asyncio.Protocol):
    """One connection: calls are answered in their order."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._asked: collections.deque[asyncio.Future[Any]] = collections.deque()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            asked = self._asked.popleft()
            if asked.done():
                continue
            if isinstance(reply, hiredis.ReplyError):
                asked.set_exception(reply)
            else:
                asked.set_result(reply)

    def connection_lost(self, why: Exception | None) -> None:
        for asked in self._asked:
            asked.cancel()

    def call(self, *words: str | bytes | int) -> asyncio.Future[Any]:
        """Send a command; the future gives its reply."""
        assert self._transport
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self._transport.write(hiredis.pack_command(words))  # type: ignore[arg-type]
        return asked


class Fleet:
    """All simulated workers of this process, and what they did."""

    def __init__(self, functions: dict[str, str], lease_seconds: float) -> None:
        self.functions = functions
        self.lease_seconds = lease_seconds
        self.did: Counter[str] = Counter()
        self.late = 0.0
        self.ended = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Sleep, and note by how much it took longer."""
        due = time.monotonic() + seconds
        await asyncio.sleep(seconds)
        self.late = max(self.late, time.monotonic() - due)

    async def report(self) -> None:
        """Print what was done, each second."""
        while True:
            await self.sleep(1.0)
            print(json.dumps({**self.did, "cpu": time.process_time(), "late": round(self.late, 4)}), flush=True)
            self.late = 0.0

    def read_pace(self) -> None:
        """Take a new length of leases from stdin; its end ends the process."""
        line = sys.stdin.readline()
        if not line:
            self.ended.set()
        elif line.strip():
            self.lease_seconds = float(line)


class SimulatedWorker:
    """One worker with one lane."""

    def __init__(self, fleet: Fleet, redis: Redis, name: str) -> None:
        self._fleet, self._redis, self.name = fleet, redis, name
        self._versions = json.dumps(registry.versions())
        #: The job whose slot it has, and the lease in hand: job, token, first unit.
        self._job = ""
        self._lease: tuple[str, str, int] | None = None
        self._queue = ""

    def _call(self, name: str, *arguments: str | bytes | int) -> asyncio.Future[Any]:
        self._fleet.did["functions"] += 1
        return self._redis.call("FCALL", self._fleet.functions[name], 0, *arguments)

    async def run(self) -> None:
        """Work until cancelled. An error of a function is counted, and the worker goes on."""
        await self._heartbeat()
        beats = asyncio.create_task(self._beats())
        try:
            while True:
                try:
                    await self._turn()
                except hiredis.ReplyError as error:
                    self._fleet.did["errors"] += 1
                    print(f"{self.name}: {error}", file=sys.stderr)
                    await self._fleet.sleep(1.0)
        finally:
            beats.cancel()

    # -- beats ------------------------------------------------------------------------------------------------------

    async def _beats(self) -> None:
        await asyncio.sleep(random.random() * HEARTBEAT_SECONDS)
        while True:
            with contextlib.suppress(hiredis.ReplyError):
                if self._lease:
                    await self._call("heartbeat", *self._lease, LEASE_TTL_MS)
                if self._job:
                    await self._call("hold", self.name, SLOT_TTL_MS)
                await self._heartbeat()
            await self._fleet.sleep(HEARTBEAT_SECONDS)

    async def _heartbeat(self) -> None:
        row = {
            "device": "cpu",
            "state": "busy" if self._lease else "idle",
            "lanes": 1,
            "job": self._job,
            "busy_lanes": int(bool(self._lease)),
            "kinds": self._versions,
            "pid": 1,
            "rates": "{}",
            "host": self.name,
            "network": "1",
            "cpu_ratio": "0.9",
            "cpus": 1,
            "memory_used_bytes": 10**9,
            "memory_total_bytes": 10**10,
            "network_receive_bytes_total": 0,
            "network_transmit_bytes_total": 0,
        }
        words: list[str | int] = [word for pair in row.items() for word in pair]
        await self._call("worker", self.name, "0000000000001-simulate", WORKER_TTL_MS, *words)

    # -- turns ------------------------------------------------------------------------------------------------------

    async def _turn(self) -> None:
        self._job = ""
        words = (self.name, "", 1, LEASE_TTL_MS, SLOT_TTL_MS, json.dumps(_LISTENED), "", 0, self._versions)
        how, *more = await self._call("next", *words)
        if how != b"hold":
            await self._fleet.sleep(_IDLE_SECONDS)
            return
        self._job = more[0].decode()
        total, queue = await self._redis.call("HMGET", keys.job(self._job), "total", "queue")
        self._queue = queue.decode() if queue else ""
        opened = time.monotonic()
        while total and time.monotonic() - opened < QUANTUM_SECONDS:
            if not await self._take_lease(max(1, int(total) // LEASES_A_JOB)):
                return

    async def _take_lease(self, want: int) -> bool:
        """Lease, wait as long as a kernel would compute, and commit. False: the slot is over."""
        job, token = self._job, lease_tokens.new()
        higher = json.dumps(queues.with_higher_priority(self._queue, _LISTENED))
        rate = f"{want / self._fleet.lease_seconds:.6g}"
        lane = f"{self.name}/0"
        how, *more = await self._call("lease", job, token, want, 1, LEASE_TTL_MS, self.name, lane, rate, higher)
        if how == b"wait":
            await self._fleet.sleep(LINGER_SECONDS)
        elif how == b"finishing":
            await self._finish()
        if how != b"ok":
            return bool(how == b"wait")
        lo, hi = map(int, more[:2])
        self._lease = job, token, lo
        seconds = self._fleet.lease_seconds * (hi - lo) / want
        await self._fleet.sleep(seconds)
        self._lease = None
        return await self._commit(token, hi, seconds)

    async def _commit(self, token: str, upto: int, seconds: float) -> bool:
        words = (_PARTIAL, round(seconds * 1000), self.name, Device.CPU.value, "1", 0, "", 0, "")
        code, parts = await self._call("commit", self._job, token, upto, *words)
        self._fleet.did["commits" if code else "stale"] += 1
        if code == 2:
            await self._finish()
        elif parts >= FOLD_AT:
            await self._fold()
        return bool(code == 1)

    # -- results ----------------------------------------------------------------------------------------------------

    async def _gather(self) -> GatheredPartials:
        read = [
            ("GET", keys.job_accumulator(self._job)),
            ("LRANGE", keys.job_parts(self._job), "0", str(GATHER_LIMIT - 1)),
        ]
        accumulator, parts = await self._call("read", json.dumps(read))
        return GatheredPartials(accumulator=accumulator, parts=tuple(parts), done=0, spec=None)

    async def _fold(self) -> None:
        gathered = await self._gather()
        if gathered.parts:
            await self._call("fold", self._job, gathered.digest, len(gathered.parts), _PARTIAL)

    async def _finish(self) -> None:
        """Fold, and end the job; the result is no one's."""
        await self._fold()
        digest = GatheredPartials(accumulator=_PARTIAL, parts=(), done=0, spec=None).digest
        if await self._call("finish", self._job, digest, b"{}", "[]"):
            self._fleet.did["jobs"] += 1


def _functions(url: str) -> dict[str, str]:
    """Wait until a coordinator has loaded the library, and return the names of the functions that workers call."""
    store = Store(connect(url), loads=False)
    while True:
        try:
            store.libraries.check()
        except LibraryMissing:
            time.sleep(0.1)
        else:
            return {name: store.functions.function(name) for name in FUNCTIONS}


async def _connected(url: str) -> Redis:
    place = urlsplit(url)
    _, redis = await asyncio.get_running_loop().create_connection(
        Redis, place.hostname or "127.0.0.1", place.port or 6379
    )
    if place.username:
        await redis.call("AUTH", place.username, place.password or "")
    return redis


async def main(url: str, workers: int, lease_seconds: float) -> None:
    """Run this number of workers until stdin ends."""
    fleet = Fleet(_functions(url), lease_seconds)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), fleet.read_pace)
    tasks = [asyncio.create_task(fleet.ended.wait()), asyncio.create_task(fleet.report())]
    connections = [await _connected(url) for _ in range(workers)]  # first: a busy loop is slow to make them
    for number, redis in enumerate(connections):
        worker = SimulatedWorker(fleet, redis, f"simulated-{number:04d}")
        tasks.append(asyncio.create_task(worker.run()))
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
