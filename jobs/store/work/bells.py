"""Bells: RQ jobs that wake idle workers, by device and priority. The only module that imports rq.

A bell is an anonymous RQ job that says "somebody should look for work". It is JSON, names one function and is never
called: workers answer a bell by asking NEXT, so nothing that a writer to Redis puts into a queue is executed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, cast

import rq
from rq.exceptions import StopRequested
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.worker import WorkerStatus
from rq.worker_registration import REDIS_WORKER_KEYS, WORKERS_BY_QUEUE_KEY, register

from jobs import queues
from jobs.store import Store, keys
from jobs.store.server.connection import Client, RedisError, SilenceError, Unreachable

log = logging.getLogger(__name__)

#: Seconds that an idle worker blocks on its bells, and that it waits for an answer to that before it connects anew.
BLOCK_SECONDS, SILENCE_SECONDS = 2, 4
#: Seconds between the signs of life that RQ's tools look at, and after which they forget a worker: turns can be long.
RQ_BEAT_SECONDS, RQ_TTL_SECONDS = 5, 60
#: Name of the function that a bell carries.
BELL = "jobs.execution.bell"
#: Id of every bell.
BELL_ID = "bell"


def place_bells(store: Store) -> None:
    """Create the job of RQ that every bell stands for, and name the queues to RQ; repeated at every start."""
    bell = Job.create(
        BELL,
        connection=store.client,
        serializer=JSONSerializer,
        timeout=60,
        result_ttl=0,
        description=BELL,
        id=BELL_ID,
    )
    pipe = store.client.pipeline()
    pipe.hset(bell.key, mapping={**bell.to_dict(include_meta=False), "status": "queued"})
    pipe.sadd(keys.RQ_QUEUES, *map(keys.rq_queue, queues.ALL))
    pipe.execute()


def pop(store: Store, listened: Sequence[str], seconds: float) -> str | None:
    """Take a bell of these queues, the first queue first, and return its queue; None when none came in time.

    The caller answers it by NEXT, or puts it back.
    """
    names = {keys.rq_queue(queue): queue for queue in listened}
    popped = store.client.blpop(list(names), timeout=seconds)
    return None if popped is None else names[popped[0].decode()]


def put_back(store: Store, queue: str) -> None:
    """Let the next worker of a queue hear a bell that was popped for one that is gone."""
    store.client.lpush(keys.rq_queue(queue), BELL_ID)


def forget_dead_workers(store: Store) -> int:
    """Strike out of RQ's sets the names of workers that were killed and could not do it themselves; return how many."""
    sets = [REDIS_WORKER_KEYS, *(WORKERS_BY_QUEUE_KEY % name for name in queues.ALL)]
    pipe = store.client.pipeline(transaction=False)
    for name in sets:
        pipe.smembers(name)
    known = sorted(set().union(*pipe.execute()))
    for worker in known:
        pipe.exists(worker)
    dead = [worker for worker, alive in zip(known, pipe.execute(), strict=True) if not alive]
    for name in sets if dead else []:
        pipe.srem(name, *dead)
    pipe.execute()
    return len(dead)


class BellWorker(rq.SimpleWorker):
    """RQ worker that calls `serve(queue)` for each bell, and with an empty name when none came for BLOCK_SECONDS.

    The latter is for bells that got lost. `silent` is called when Redis did not answer for SILENCE_SECONDS: other
    connections are probably as dead. RQ's tools list this worker. RQ's loop and its bookkeeping of executions, results
    and registries are not used: leases hold every fact about work.
    """

    def __init__(
        self,
        listened: tuple[str, ...],
        client: Client,
        serve: Callable[[str], None],
        stop: Callable[[], None],
        silent: Callable[[], None] = lambda: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        super().__init__(list(listened), name=name, connection=client, serializer=JSONSerializer)
        self._serve = serve
        self._stop = stop
        self._silent = silent
        self._stopped = stopped
        self._activity: str = WorkerStatus.IDLE
        self._signalled = False
        self._beaten = -math.inf
        self.worker_ttl = RQ_TTL_SECONDS

    def listen(self) -> None:
        """Answer bells until a signal, `stopped` or StopRequested ends it."""
        self.register_birth()  # type: ignore[no-untyped-call]
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.request_stop)
        try:
            while not (self._signalled or self._stopped()):  # a signal may come before RQ's handlers are there
                self._answer_or_wait()
        except StopRequested:
            return
        finally:
            self.register_death()  # type: ignore[no-untyped-call]

    def _answer_or_wait(self) -> None:
        try:
            self.heartbeat()
            self._answer_next()
        except SilenceError:
            log.warning("redis was silent for %s s: connecting again", SILENCE_SECONDS)
            self._silent()
            self._answer("")
        except Unreachable as error:
            log.warning("redis cannot be reached: %s", error)
            time.sleep(0.5)

    def _answer_next(self) -> None:
        """Wait for a bell and answer it; delete what else is in a queue, since nothing that it names is executed."""
        popped = self.connection.blpop([queue.key for queue in self.queues], BLOCK_SECONDS)
        if popped is None:
            self._answer("")
            return
        key, bell = (word.decode(errors="replace") for word in cast(tuple[bytes, bytes], popped))
        queue = next(queue.name for queue in self.queues if queue.key == key)
        if bell == BELL_ID:
            self._answer(queue)
        else:
            self.connection.delete(keys.rq_job(bell))
            log.warning("dropped what is no bell", extra={"rq_job": bell, "queue": queue})

    def _answer(self, queue: str) -> None:
        self._activity = WorkerStatus.BUSY
        try:
            self._serve(queue)
        except Unreachable as error:
            log.warning("redis cannot be reached: %s", error)
            time.sleep(0.5)
        finally:
            self._activity = WorkerStatus.IDLE

    @property
    def connection_timeout(self) -> int:
        """Seconds after which RQ takes a command on its connection for lost."""
        return SILENCE_SECONDS

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Tell RQ's tools that this worker lives, every RQ_BEAT_SECONDS: nothing else looks.

        Registers it again, since its name is struck out when a beat comes too late.
        """
        if time.monotonic() - self._beaten < RQ_BEAT_SECONDS:
            return
        try:
            with self.connection.pipeline() as pipe:
                register(self, pipe)
                super().heartbeat(RQ_TTL_SECONDS, pipe)
                pipe.execute()
            self._beaten = time.monotonic()
        except SilenceError:  # silence: connections must be made anew
            raise
        except RedisError as error:  # RQ would give up
            log.warning("RQ does not hear that this worker lives: %s", error)

    def handle_warm_shutdown_request(self) -> None:
        """Stop. RQ calls this at a signal, and raises StopRequested afterwards unless a bell is being answered."""
        self._signalled = True
        self._stop()

    def get_state(self) -> str:
        """Return whether a bell is being answered."""
        return self._activity

    def set_shutdown_requested_date(self) -> None:
        """Write nothing to Redis while a signal is handled."""


def listen(worker: Callable[[], BellWorker], stopped: Callable[[], bool]) -> None:
    """Run workers, each under a new name, until `stopped`: a worker ends when Redis is gone while it registers."""
    with contextlib.suppress(StopRequested):  # the last worker's signal handler raises it outside its loop too
        while not stopped():
            try:
                worker().listen()
            except StopRequested:
                raise
            except (RedisError, ValueError) as error:
                log.warning("listening again in a second: %s", error)
            except Exception:
                log.exception("listening again in a second")
            if not stopped():
                time.sleep(1)
