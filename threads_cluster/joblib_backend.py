"""Backend of joblib that runs its calls on the cluster's runners.

    import joblib, threads_cluster

    threads_cluster.register_joblib()
    with joblib.parallel_config("threads-cluster"):
        print(joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(100)))

Libraries that use joblib, such as scikit-learn, run on the cluster in the same way.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import joblib
from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

from threads_cluster.client.api import Cluster
from threads_cluster.errors import ClientError

if TYPE_CHECKING:
    from threads_cluster.client.calling.executor import ClusterExecutor

#: Name of the backend in joblib.
NAME = "threads-cluster"


def register_joblib() -> None:
    """Register the backend `threads-cluster` in joblib. Raises ImportError if joblib is not installed.

        threads_cluster.register_joblib()
        with joblib.parallel_config("threads-cluster", memory="2 GiB"):
            search = GridSearchCV(model, grid, n_jobs=-1).fit(X, y)

    `parallel_config` accepts `cluster`, which is `Cluster()` by default, and the options of `Cluster.executor`. The
    runners need joblib and the packages of the functions. `requirements=["scikit-learn"]` installs them.
    """
    joblib.register_parallel_backend(NAME, ClusterBackend)


class ClusterBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Backend that submits each of joblib's batches as a call of an executor.

    joblib collects short calls into batches. Nested calls of joblib run in threads of the same slot.
    """

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, cluster: Cluster | None = None, *, nesting_level: int | None = None, **options: Any) -> None:
        """Prepare a backend for a cluster, by default for the one that `Cluster()` chooses.

        `options` are those of `Cluster.executor`.
        """
        super().__init__(nesting_level=nesting_level)
        self._cluster, self._options = cluster, options
        self._executor: ClusterExecutor | None = None
        self._choices: dict[str, Any] = {}
        self._futures: set[Future[Any]] = set()
        #: Number of slots of the live runners. None before `configure` and after `terminate`.
        self._slots: int | None = None
        self.parallel: Any = None

    @property
    def cluster(self) -> Cluster:
        """Return the cluster that makes the calls."""
        if self._cluster is None:
            self._cluster = Cluster()
        return self._cluster

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of batches to run at the same time. -1 and None mean all slots of the live runners."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            n_jobs = self.default_n_jobs
        if n_jobs > 0:
            return n_jobs
        slots = count_slots(self.cluster) if self._slots is None else self._slots
        return max(slots + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_ignored: Any) -> int:
        """Prepare for the calls of one `Parallel`. With `n_jobs=1`, they run in this process, as in other backends."""
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        if self.parallel is not parallel:
            raise FallbackToBackend(self._copy(parallel))
        if n_jobs is None or n_jobs < 0:
            self._slots = count_slots(self.cluster)
        count = self.effective_n_jobs(n_jobs)
        self._choices = {"max_running": count, "name": "joblib"} | self._options
        self._executor = self.cluster.executor(**self._choices)
        return count

    def _copy(self, parallel: Any) -> ClusterBackend:
        """Return a backend for one `Parallel`, so that its errors do not cancel the calls of others."""
        backend = type(self)(self.cluster, nesting_level=self.nesting_level, **self._options)
        backend.parallel = parallel
        return backend

    def start_call(self) -> None:
        """Drop the remaining batches of an earlier call that failed. joblib would run them in this call."""
        with suppress(queue.Empty, AttributeError):  # AttributeError: joblib has renamed it
            while True:
                self.parallel._ready_batches.get_nowait()

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Future[Any]:
        """Call a batch on a runner, and return its future. `callback` is called with the future at its end."""
        assert self._executor is not None
        future = self._executor.submit(_BATCH, func)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, future: Future[Any]) -> Any:
        """Return the results of a batch, or raise its exception."""
        return future.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all batches that have not ended. The backend accepts further batches if `ensure_ready` is True."""
        left = tuple(self._futures)
        self._futures.clear()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = self.cluster.executor(**self._choices) if ensure_ready else None
        _cancel(self.cluster, left)

    def terminate(self) -> None:
        """End the calls of one `Parallel`."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
        self._executor = self._slots = None
        self.reset_batch_stats()


def count_slots(cluster: Cluster) -> int:
    """Return the number of slots of all live runners."""
    workers = cluster.workers()
    return sum(
        each["lanes"] for each in workers if each["device"] == "runner" and each["live"] and not each["draining"]
    )


def _cancel(cluster: Cluster, futures: Sequence[Future[Any]]) -> None:
    """Cancel the jobs of calls that are running."""
    for job_id in {getattr(future, "job_id", None) for future in futures if not future.done()} - {None}:
        with suppress(ClientError):  # The job has ended meanwhile, or the cluster does not respond
            cluster.cancel(str(job_id))


def _batch_caller() -> Callable[[Callable[[], Any]], Any]:
    """Return the function that calls a batch on a runner."""

    def call_batch(batch: Callable[[], Any]) -> Any:
        from joblib import parallel

        # A nested call that names this backend runs in threads, because a runner has no connection to the cluster
        parallel.BACKENDS.setdefault("threads-cluster", parallel.ThreadingBackend)
        return batch()

    call_batch.__module__ = "__main__"  # Pickled by value, because runners lack this package
    return call_batch


_BATCH = _batch_caller()
