"""Executor that calls Python functions on the cluster's runners, with the interface of `concurrent.futures`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from threads_cluster.client.calling import pickling
from threads_cluster.client.calling.batches import Batch, Call, CallQueue
from threads_cluster.client.calling.call_jobs import CallJob

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

#: Maximum number of unfinished jobs of one executor. Further calls are collected meanwhile.
MOST_JOBS = 8


class ClusterExecutor(Executor):
    """Executor whose calls run on runners. Functions of scripts and notebooks travel by value.

    with cluster.executor() as executor:
        print(executor.submit(pow, 2, 10).result())
        print(list(executor.map(lambda x: x + 1, range(100))))
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        parameters: Mapping[str, Any] | None = None,
        choices: Mapping[str, Any] | None = None,
    ) -> None:
        """`parameters` are those of kind `command`, and `choices` are options of `Cluster.submit`."""
        self._cluster, self._parameters, self._choices = cluster, parameters or {}, choices or {}
        self._functions, self._queue = pickling.Functions(), CallQueue()
        self._lock = threading.Lock()
        self._is_open = True
        self._jobs = threading.BoundedSemaphore(MOST_JOBS)
        self._watchers = ThreadPoolExecutor(MOST_JOBS, thread_name_prefix="cluster-executor")
        self._sender = threading.Thread(target=self._send, name="cluster-executor-sender", daemon=True)
        self._sender.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn(*args, **kwargs)` on a runner, and return its future."""
        call = Call(
            name=getattr(fn, "__qualname__", type(fn).__qualname__),
            function=self._functions.pickled(fn),
            arguments=pickling.encode((args, kwargs)),
            future=Future(),
        )
        with self._lock:
            if not self._is_open:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._queue.put(call)
        return call.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls. With `wait`, return when all calls have ended."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
            if was_open:
                self._queue.close()
        if wait:
            self._sender.join()
            self._watchers.shutdown()

    def _send(self) -> None:
        for batches in self._queue.batches():
            for batch in batches:
                self._jobs.acquire()
                self._watchers.submit(self._run, batch)

    def _run(self, batch: Batch) -> None:
        try:
            CallJob(self._cluster, batch, self._parameters, self._choices).run()
        finally:
            self._jobs.release()
