"""Wake-ups: messages in RQ queues that make idle workers look for work. Only this module imports the library rq.

All wake-ups are the same RQ job. It is JSON and names a function that is never called. Workers respond to a wake-up by
calling NEXT, so the contents of a queue are never executed.
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

#: Seconds for which an idle worker waits for a wake-up.
#: After `SILENCE_SECONDS` without a reply from Redis, the worker reconnects.
BLOCK_SECONDS, SILENCE_SECONDS = 2, 4
#: Interval in seconds of heartbeats to RQ's tools.
#: RQ's tools forget a worker after `RQ_TTL_SECONDS` without a heartbeat.
RQ_HEARTBEAT_SECONDS, RQ_TTL_SECONDS = 5, 60
#: Name of the function in the RQ job, which is never called.
WAKEUP_FUNCTION = "jobs.worker.execution.wake_up"
#: ID of the RQ job that represents all wake-ups.
WAKEUP_ID = "wakeup"


def create_wakeup_job(store: Store) -> None:
    """Create the RQ job that represents all wake-ups, and register the queues with RQ.

    Every start of a coordinator repeats this.
    """
    wakeup = Job.create(
        WAKEUP_FUNCTION,
        connection=store.client,
        serializer=JSONSerializer,
        timeout=60,
        result_ttl=0,
        description=WAKEUP_FUNCTION,
        id=WAKEUP_ID,
    )
    pipe = store.client.pipeline()
    pipe.hset(wakeup.key, mapping={**wakeup.to_dict(include_meta=False), "status": "queued"})
    pipe.sadd(keys.RQ_QUEUES, *map(keys.rq_queue, queues.ALL))
    pipe.execute()


def pop_wakeup(store: Store, listened: Sequence[str], seconds: float) -> str | None:
    """Pop a wake-up from the first queue that has one, and return the queue's name. Return None after `seconds`.

    The caller must then call NEXT, or put the wake-up back.
    """
    names = {keys.rq_queue(queue): queue for queue in listened}
    popped = store.client.blpop(list(names), timeout=seconds)
    return None if popped is None else names[popped[0].decode()]


def requeue_wakeup(store: Store, queue: str) -> None:
    """Put back a wake-up that was popped for a worker that is no longer running."""
    store.client.lpush(keys.rq_queue(queue), WAKEUP_ID)


def ensure_wakeup(store: Store, queue: str) -> None:
    """Add a wake-up to a queue that is empty. A queue that has wake-ups already causes a request for work."""
    if not store.client.llen(keys.rq_queue(queue)):
        requeue_wakeup(store, queue)


def remove_dead_workers(store: Store) -> int:
    """Remove workers that died without unregistering from RQ's sets. Return their number."""
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


class WakeupWorker(rq.SimpleWorker):
    """RQ worker that calls `serve(queue)` for each wake-up, and `serve("")` after BLOCK_SECONDS without a wake-up.

    The second call handles lost wake-ups. `silent` is called if Redis did not reply for SILENCE_SECONDS, because other
    connections are probably dead, too. RQ's tools list this worker. RQ's loop, executions, results and registries are
    not used: leases contain all state of work.
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
        self._activity: str = WorkerStatus.BUSY
        self._signalled = False
        self._beaten = -math.inf
        self.worker_ttl = RQ_TTL_SECONDS

    def listen(self) -> None:
        """Wait for wake-ups and handle them, until `stopped` returns True or a signal arrives."""
        self.register_birth()  # type: ignore[no-untyped-call]
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.request_stop)
        try:
            while not (self._signalled or self._stopped()):  # A signal can arrive before RQ installs its handlers
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
            log.warning("redis did not reply for %s s; reconnecting", SILENCE_SECONDS)
            self._silent()
            self._answer("")
        except Unreachable as error:
            log.warning("redis cannot be reached: %s", error)
            time.sleep(0.5)

    def _answer_next(self) -> None:
        """Wait for a wake-up and handle it. Any other RQ job is deleted without being executed."""
        self._activity = WorkerStatus.IDLE
        try:
            popped = self.connection.blpop([queue.key for queue in self.queues], BLOCK_SECONDS)
        finally:
            self._activity = WorkerStatus.BUSY
        if popped is None:
            self._answer("")
            return
        key, wakeup = (word.decode(errors="replace") for word in cast(tuple[bytes, bytes], popped))
        queue = next(queue.name for queue in self.queues if queue.key == key)
        if wakeup == WAKEUP_ID:
            self._answer(queue)
        else:
            self.connection.delete(keys.rq_job(wakeup))
            log.warning("Dropped an unknown job from an RQ queue.", extra={"rq_job": wakeup, "queue": queue})

    def _answer(self, queue: str) -> None:
        try:
            self._serve(queue)
        except Unreachable as error:
            log.warning("redis cannot be reached: %s", error)
            time.sleep(0.5)

    @property
    def connection_timeout(self) -> int:
        """Return the seconds after which RQ considers a command on its connection as lost."""
        return SILENCE_SECONDS

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Send a heartbeat to RQ's tools every RQ_HEARTBEAT_SECONDS seconds.

        This registers the worker again, because RQ removes its name after a late heartbeat.
        """
        if time.monotonic() - self._beaten < RQ_HEARTBEAT_SECONDS:
            return
        try:
            with self.connection.pipeline() as pipe:
                register(self, pipe)
                super().heartbeat(RQ_TTL_SECONDS, pipe)
                pipe.execute()
            self._beaten = time.monotonic()
        except SilenceError:  # RQ's connection must be replaced after silence
            raise
        except RedisError as error:  # Without this handler, RQ would exit.
            log.warning("cannot send RQ's heartbeat of this worker: %s", error)

    def handle_warm_shutdown_request(self) -> None:
        """Stop the worker. RQ calls this method after a signal.

        RQ raises StopRequested while the worker waits for a wake-up. Otherwise, `listen` ends its loop.
        """
        self._signalled = True
        self._stop()

    def get_state(self) -> str:
        """Return the worker's state for RQ: idle while the worker waits for a wake-up, otherwise busy.

        RQ's signal handler raises StopRequested in an idle worker, and logging would swallow the exception.
        """
        return self._activity

    def set_shutdown_requested_date(self) -> None:
        """Do nothing, because Redis must not be called while a signal is being handled."""


def listen(worker: Callable[[], WakeupWorker], stopped: Callable[[], bool]) -> None:
    """Run RQ workers until `stopped` returns True. Each one has a new name, and exits if Redis cannot register it."""
    with contextlib.suppress(StopRequested):  # A signal handler can raise StopRequested.
        while not stopped():
            try:
                worker().listen()
            except StopRequested:
                raise
            except (RedisError, ValueError) as error:
                log.warning("cannot listen for wake-ups; retrying in a second: %s", error)
            except Exception:
                log.exception("cannot listen for wake-ups; retrying in a second")
            if not stopped():
                time.sleep(1)
