"""Python client for a cluster.

    from threads_cluster.client.api import Cluster

    with Cluster() as cluster:
        print(cluster.run("collatz", {"start_number": 1, "number_count": 1_000_000})["delay"])

        job = cluster.submit("thread", {"replicas": 10_000})
        cluster.wait(job["job_id"])
        print(cluster.result(job["job_id"])["result"])

Methods return the API's JSON as dicts. Integers beyond 2^53 are decimal strings in responses: `int(text)` is exact.
Arguments can contain integers of any size. Errors are subclasses of `threads_cluster.errors.ClientError`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeAlias, TypeVar, overload

import httpx

from threads_cluster import settings
from threads_cluster.client import answers, bodies, contexts, logins, progress_bars
from threads_cluster.client.connection import Connection, Patience, open_transport, shown_address
from threads_cluster.client.interrupts import CancelOnInterrupt
from threads_cluster.client.resource import pages, quoted
from threads_cluster.client.suspension import sleep
from threads_cluster.errors import (
    ApiError,
    BadArgument,
    ClientError,
    JobEnded,
    TimedOut,
    UnexpectedAnswer,
)
from threads_protocol import answers as shapes
from threads_protocol import numbers
from threads_protocol.states import TERMINAL

if TYPE_CHECKING:
    from threads_cluster.client.artifacts import Artifacts
    from threads_cluster.client.attachments import Attachment
    from threads_cluster.client.calling.executor import ClusterExecutor
    from threads_cluster.client.calling.references import Reference
    from threads_cluster.client.calling.tasks import Task, TaskExecutors
    from threads_cluster.client.calling.values import ValueStore
    from threads_cluster.client.calling.watcher import Watcher
    from threads_cluster.client.models import Data, Models
    from threads_cluster.client.profiles import Profile, Profiles
    from threads_cluster.client.programs import Ended, Mapped, Programs
    from threads_cluster.client.services import Services
    from threads_cluster.client.sse import Reader
    from threads_cluster.client.workflows import Workflows

Json: TypeAlias = dict[str, Any]
P = ParamSpec("P")
R = TypeVar("R")

#: Maximum duration in seconds of a long poll. The API sets this limit.
LONG_POLL_SECONDS = 30.0
#: Interval in seconds between two updates of a progress display.
_PROGRESS_SECONDS = 0.5
#: Minimum interval in seconds between two requests for the same job.
_LEAST_STEP = 0.1


class Cluster:
    """Connection to a cluster. Use it as a context manager, from any number of threads.

        with Cluster() as cluster:
            print(cluster.run(["echo", "hello"]).stdout)

    A process that was forked can use the clusters of its parent process: it opens new connections.
    If the cluster has never responded, a call fails at once. After the first response, failing calls are retried for
    `patience` seconds, or `wait_patience` seconds while waiting for a job, so that callers do not notice a
    coordinator's restart.
    """

    #: Function that opens the transport of the connection.
    _open_transport = staticmethod(open_transport)

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        timeout: float = 10.0,
        *,
        patience: float = 10.0,
        wait_patience: float = 300.0,
        context: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Prepare a connection to the cluster at `url`, or to the cluster with the name `context`.

        The default is CLUSTER_URL, then the cluster of this checkout, then the selected context. `token` defaults to
        CLUSTER_TOKEN, then to the token that `cluster login` stored for the address, then to the token of the local
        cluster. Raises Misconfigured if the URL or the token is invalid, and NotRunning if the chosen cluster is a
        local cluster that is not running. A request fails after `timeout` seconds without a response. `transport`
        replaces the network in tests.
        """
        stated = settings.load()
        chosen = contexts.choose(stated, url, context)
        known = replace(chosen, url=shown_address(chosen.url))
        kept = logins.credential_for(known, stated) if token is None else logins.given(token)
        transports = self._open_transport if transport is None else lambda _trusted: transport
        self.connection = Connection(chosen, kept, timeout, transports)
        self.url = self.connection.url
        self.patience = patience
        self.wait_patience = wait_patience

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Describe the cluster in a notebook: its load in the last ten minutes, and its workers."""
        from threads_cluster.client import cluster_display

        return cluster_display.describe(self)

    @cached_property
    def artifacts(self) -> Artifacts:
        """Methods for folders and files that are stored in the cluster: `put`, `list`, `info`, `fetch`, `delete`."""
        from threads_cluster.client.artifacts import Artifacts

        return Artifacts(self.connection, self.patience)

    @cached_property
    def programs(self) -> Programs:
        """Methods for programs on runners: `submit`, `units`, `fetch`, and the methods behind `run` and `map`."""
        from threads_cluster.client.programs import Programs

        return Programs(self, self.connection)

    def attachment(self, job_id: str, typing: Cluster) -> Attachment:
        """Return a shell in a unit of the job `job_id`. A second thread sends its input over the connection `typing`.

        Example:
            shell = cluster.attachment(job_id, typing=Cluster())
        """
        from threads_cluster.client.attachments import Attachment

        return Attachment(self.connection, typing.connection, quoted(job_id))

    @cached_property
    def workflows(self) -> Workflows:
        """Methods for workflows: `submit`, `validate`, `list`, `get`, `wait`, `cancel`, `retry`, `approve`,
        `delete`.
        """
        from threads_cluster.client.workflows import Workflows

        return Workflows(self.connection, self)

    @cached_property
    def profiles(self) -> Profiles:
        """Methods for profiles of hosts and GPUs: `start`, `list`, `get`, `stop`, `wait`, `fetch`, `summary`,
        `delete`.
        """
        from threads_cluster.client.profiles import Profiles

        return Profiles(self.connection, self)

    def profile(self, name: str, **how: Any) -> Profile:
        """Record a profile of hosts and GPUs during a `with` block.

        `name` is the name of the new profile, and `how` accepts the arguments of `profiles.start`. Call `summary` of
        the profile after the block.

        Example:
            with cluster.profile("noon", hz=10) as profile:
                cluster.run(["python3", "train.py"], files=".")
            print(profile.summary())
        """
        from threads_cluster.client.profiles import Profile

        return Profile(self.profiles, name, **how)

    @cached_property
    def services(self) -> Services:
        """Methods for services: `serve`, `list`, `get`, `wait`, `scale`, `restart`, `stop`, `delete`."""
        from threads_cluster.client.services import Services

        return Services(self.connection, self)

    @cached_property
    def models(self) -> Models:
        """Methods for models: `list`, `get`, `register`, `download`, `copy`, `move`, `delete`."""
        from threads_cluster.client.models import Models

        return Models(self.connection, self)

    def dask(self, /, workers: int = 4, *, name: str | None = None, **how: Any) -> AbstractContextManager[Any]:
        """Return a context manager that starts Dask workers in the cluster and provides a Dask client.

        Deletes the workers after the block. With `name`, uses the running workers of that service, and keeps them.
        `how`: `threads` and `memory_mib` per worker, `requirements`, and `timeout`, the maximum start time in seconds
        (300). Requires `distributed` on this machine, in the workers' version, and the scope run.

        Example:
            with cluster.dask(workers=8) as dask:
                print(dask.submit(pow, 2, 10).result())
        """
        from threads_cluster.client import dask_clients

        return dask_clients.connected(self, workers, name, **how)

    @cached_property
    def data(self) -> Data:
        """Methods for chunks of data: `create`, `list`, `get`, `move`, `transfer`, `delete`."""
        from threads_cluster.client.models import Data

        return Data(self.connection, self)

    def deploy(self, /, model_name: str, **how: Any) -> Json:
        """Serve a model, and return `{deployment_id, status}`.

        `model_name` and `how` are the arguments of `services.deploy`.

        Example:
            print(cluster.deploy("qwen")["deployment_id"])
        """
        return self.services.deploy(model_name, **how)

    def infer(self, /, deployment_id: str, prompt: str, **how: Any) -> Json:
        """Let a model continue the text `prompt`, and return `{text, usage, deployment_id}`.

        `how` accepts `max_tokens`, `temperature` and `stop_sequences`, as in `services.infer`.

        Example:
            print(cluster.infer("qwen", "Once upon a time", max_tokens=32)["text"])
        """
        return self.services.infer(deployment_id, prompt, **how)

    def notify(self, notice: Callable[[ClientError], None], silence: Callable[[float], None] | None = None) -> None:
        """Set callbacks for outages and late responses.

        `notice` receives the error once per outage, when retried calls have failed for 3 s. `silence` is called from
        another thread when a response is 3 s late. Its argument is the remaining time of the call in seconds.

        Example:
            cluster.notify(lambda error: print("retrying:", error))
        """
        self.connection.notice, self.connection.silence = notice, silence

    @property
    def submitted(self) -> bool:
        """Return True if this connection has sent a submission, even if it received no response."""
        return self.connection.submitted

    def close(self) -> None:
        """Delete the values of `put`, and close the connections. Jobs continue. Futures of unfinished tasks fail.

        Example:
            cluster = Cluster()
            cluster.close()
        """
        if "task_executors" in self.__dict__:
            self.task_executors.close()
        if "values" in self.__dict__:
            self.values.close()
        self.connection.close()

    def submit(
        self,
        /,
        kind: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        priority: str | None = None,
        device: str | None = None,
        gpu_preferred: bool | None = None,
        idempotency_key: str | None = None,
        max_running: int | None = None,
        timeout_seconds: float | None = None,
        hold: bool | None = None,
        notify: str | None = None,
        after: Sequence[str] | None = None,
        after_any: Sequence[str] | None = None,
        name: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> Json:
        """Submit a job, and return `{job_id, status, estimated_wait_seconds, notes}`.

        - `max_running`: the maximum number of lanes that compute the job at the same time.
        - `timeout_seconds`: the job fails this long after it started.
        - `after`: IDs of jobs that must succeed first. If one fails or is cancelled, this job is skipped.
        - `after_any`: IDs of jobs that must finish first, in any state. Both lists together have at most 1,000 IDs.
        - `hold`: queue a job that exceeds a limit of its tenant, instead of rejecting it.
        - `notify`: a URL that receives a signed POST when the job has finished (docs/webhooks.md).
        - `name`: the title of the job in lists, one line of up to 80 characters.
        - `tags`: up to 16 words by which jobs can be listed.
        - `idempotency_key`: random by default, so that a retry after a broken connection never submits a second job.
        - `kind`, `parameters`: the kind of the job and its parameters. `cluster.kinds()` describes them.
        - `priority`: high, normal or low.
        - `device`: cpu or gpu. With `gpu_preferred`, a GPU computes the job if one is live and does not take longer.

        Example:
            job = cluster.submit("thread", {"replicas": 10_000}, tags=["sweep-7"])
            print(cluster.wait(job["job_id"])["state"])
        """
        return self._post(
            "submit",
            submission(
                kind,
                parameters,
                priority=priority,
                device=device,
                gpu_preferred=gpu_preferred,
                idempotency_key=idempotency_key,
                max_running=max_running,
                timeout_seconds=timeout_seconds,
                hold=hold,
                notify=notify,
                after=after,
                after_any=after_any,
                name=name,
                tags=tags,
            ),
            shape=shapes.jobs.Submitted,
        )

    def estimate(self, kind: str, parameters: Mapping[str, Any]) -> Json:
        """Return `{queue, estimated_wait_seconds, unschedulable, notes}` of a job without submitting it.

        `kind` and `parameters` are those of `submit`. `unschedulable` explains why no live runner could ever take the
        job. It is None if one could.

        Example:
            print(cluster.estimate("command", {"command": ["true"], "requirements": {"gpus": 8}})["unschedulable"])
        """
        return self._post("estimate", wire({"type": kind, "parameters": parameters}), shape=shapes.jobs.Estimate)

    @overload
    def run(
        self,
        /,
        kind: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        progress: bool = False,
        **choices: Any,
    ) -> Json: ...

    @overload
    def run(
        self,
        /,
        kind: Sequence[str],
        *,
        files: str | Path | None = None,
        timeout: float | None = None,
        progress: bool = False,
        **choices: Any,
    ) -> Ended: ...

    def run(
        self,
        /,
        kind: str | Sequence[str],
        parameters: Mapping[str, Any] | None = None,
        *,
        files: str | Path | None = None,
        timeout: float | None = None,
        progress: bool = False,
        **choices: Any,
    ) -> Json | Ended:
        """Submit a job, wait until it ends, and return its result.

        `kind` and `parameters` describe the job, and `choices` accepts the options of `submit`. A short job takes one
        request. Raises TimedOut after `timeout` seconds, and JobEnded if the job failed or was cancelled. An
        idempotency key, as in `submit`, prevents a second job after a broken connection.

        `progress` shows a live display, in a terminal or below a notebook's cell. At a terminal and in a notebook, the
        first Ctrl-C or Interrupt asks, and the second one cancels the job.

        If `kind` is a list of arguments, runs it as a program in a copy of the folder `files`. `choices` then accepts
        `queue` and the fields of `Program`, and the method returns an `Ended` for any exit code. Raises NoRunner if no
        live runner could ever take the program, unless `queue` is True.

        Example:
            print(cluster.run("collatz", {"start_number": 1, "number_count": 1_000_000})["delay"])
            print(cluster.run(["python3", "train.py"], files=".", gpus=1).stdout)
        """
        if not isinstance(kind, str):
            from threads_cluster.client.programs import Program

            queue = choices.pop("queue", False)
            program = Program(command=kind, **choices)
            return self.programs.run(program, files=files, timeout=timeout, queue=queue, progress=progress)
        body = submission(kind, parameters, **({"idempotency_key": None} | choices))
        with CancelOnInterrupt(lambda: f"the job of kind {kind}", lambda: self._undo(body)):
            return self._run_kind(body, timeout, progress)

    def _undo(self, body: Json) -> None:
        """Cancel the job of a submission. Its idempotency key finds the job, even if the response was lost."""
        self.cancel(self._post("submit", body, shape=shapes.jobs.Submitted)["job_id"])

    def _run_kind(self, body: Json, timeout: float | None, progress: bool) -> Json:
        longest = _PROGRESS_SECONDS if progress else LONG_POLL_SECONDS
        patience = longest if timeout is None else max(0.0, min(timeout, longest))
        began = time.monotonic()
        answer = self._ask(
            "POST",
            "/api/submit",
            body=body,
            wait_seconds=f"{patience:g}",
            extra_seconds=patience,
            shape=shapes.jobs.Submitted,
        )
        if "result" in answer:
            return answer["result"]  # type: ignore[no-any-return]
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
        job = progress_bars.follow(self.follow(answer["job_id"], longest, left), progress)
        if job["state"] != "done":
            raise JobEnded(job["job_id"], job["state"], job.get("error"))
        result: Json = self.result(answer["job_id"])["result"]
        return result

    def map(
        self,
        /,
        function: str | Callable[..., Any],
        values: Iterable[Any],
        *,
        files: str | Path | None = ".",
        **choices: Any,
    ) -> Mapped:
        """Call a Python function on runners, once for each value, and return an iterator over the results.

        `function` is `module:function` in the folder `files`. Each call runs in a new interpreter. Arguments and return
        values are sent as JSON. `choices` accepts `queue`, `progress` (show a live display), `name` and `tags` of the
        job, and the fields of `Program`. Raises NoRunner if no live runner could ever take the calls, unless `queue` is
        True. The iterator raises UnitFailed at the first value whose call failed.

        Example:
            for square in cluster.map("work:square", range(100), files="."):
                print(square)
        """
        return self.programs.map(function, values, files=files, **choices)

    @cached_property
    def watcher(self) -> Watcher:
        """Notification of changed jobs, which all executors of this client share."""
        from threads_cluster.client.calling.watcher import Watcher

        return Watcher(self)

    def executor(self, /, **options: Any) -> ClusterExecutor:
        """Return an executor of `concurrent.futures` that calls Python functions on runners.

        Lambdas, closures and functions of scripts and notebooks can be called. Raises BadArgument if an option is
        invalid. `options` apply to each call, unless noted otherwise:

        - `gpus`, `cpus`: GPUs for exclusive use, and CPUs in steps of 0.5. The default is one slot of a runner.
        - `memory`: MiB, or a text such as "2 GiB". A call that uses more fails.
        - `retries`: maximum number of retries of a call that raised an exception or whose process died.
        - `timeout`: seconds after which a call is stopped and fails.
        - `labels`, `host`: labels that the runner must have, and the name of its host.
        - `env`, `secrets`: environment variables, and names of secrets that become environment variables.
        - `files`: folder that is the working directory. The default is the modules of the project that the calls need.
        - `requirements`: packages, or the path of a requirements file. The runner installs them once.
        - `python`: version of Python, such as "3.13". A runner that lacks it fails the calls.
        - `priority`, `tags`, `name`: as in `submit`, for the jobs of the calls.
        - `max_running`: maximum number of calls of one job that run at the same time.
        - `queue`: wait for a runner that could take the calls, instead of failing with NoRunner.
        - `progress`: show a live display of the calls.
        - `safe`: accept only values of JSON and NumPy from runners, so that runners cannot run code in this process.
        - `inline_bytes`: maximum size in bytes of a call's pickled arguments as part of the job, at most 64 KiB. Larger
          arguments are uploaded as files.

        Example:
            with cluster.executor(memory="2 GiB", retries=1) as executor:
                print(list(executor.map(lambda x: x * x, range(100))))
        """
        from threads_cluster.client.calling.executor import ClusterExecutor

        return ClusterExecutor(self, **options)

    @cached_property
    def values(self) -> ValueStore:
        """Storage of values for calls of Python functions."""
        from threads_cluster.client.calling.values import ValueStore

        return ValueStore(self.artifacts)

    def put(self, value: Any) -> Reference:
        """Store a Python value in the cluster, and return a reference that many calls can share.

        Pass the reference to calls of an executor, also inside of other arguments. The functions receive the value.
        Each runner reads the value once, and maps the data of arrays into memory. The cluster deletes the value when no
        reference to it is left, or when this Cluster is closed. Raises ValueNotStored if the cluster cannot store the
        value.

        Example:
            table = cluster.put(numpy.random.rand(10_000, 1_000))
            with cluster.executor() as executor:
                sums = list(executor.map(lambda row, table: table[row].sum(), range(100), [table] * 100))
        """
        return self.values.put(value)

    @cached_property
    def task_executors(self) -> TaskExecutors:
        """Executors of the tasks of this client."""
        from threads_cluster.client.calling.tasks import TaskExecutors

        return TaskExecutors(self)

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, /, **options: Any) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(self, function: Callable[P, R] | None = None, /, **options: Any) -> Any:
        """Return a function as a task, which can be called here or on runners. Use it as a decorator.

        `options` are those of `executor`. Raises BadArgument if an option is invalid.

        Example:
            @cluster.task(memory="2 GiB")
            def double(number):
                return 2 * number

            print(double(3), double.submit(3).result(), list(double.map(range(100))))
        """
        from threads_cluster.client.calling.tasks import Task

        if function is None:
            return lambda function: Task(self, function, options)
        return Task(self, function, options)

    def submit_batch(self, jobs: Sequence[Mapping[str, Any]]) -> list[Json]:
        """Submit up to 1,000 jobs and return one response per job, in order.

        Responses for rejected jobs have an `error`.

        Example:
            jobs = [{"type": "thread", "parameters": {"replicas": 1000 * n}} for n in range(1, 9)]
            ids = [answer["job_id"] for answer in cluster.submit_batch(jobs)]
        """
        keyed = [{"idempotency_key": uuid.uuid4().hex} | wire(dict(job)) for job in jobs]
        return self._one_each(len(keyed), self._post("submit-batch", {"jobs": keyed}, shape=shapes.jobs.SubmittedBatch))

    def results(self, job_ids: Sequence[str], wait_seconds: float = 0.0) -> list[Json]:
        """Return the states and results of up to 1,000 jobs. Waits up to `wait_seconds` until all have finished.

        Requests results one by one if they are too large for one response.

        Example:
            for answer in cluster.results(job_ids, wait_seconds=30):
                print(answer["state"])
        """
        body: Json = {"job_ids": list(job_ids), "wait_seconds": wait_seconds}
        asked = self._ask("POST", "/api/results", body=body, extra_seconds=wait_seconds, shape=shapes.jobs.ManyResults)
        several = self._one_each(len(body["job_ids"]), asked)
        for job_id, answer in zip(body["job_ids"], several, strict=True):
            if answer.pop("result_at", None):
                answer.pop("result_bytes", None)
                answer["result"] = self.result(job_id)["result"]
        return several

    def job(self, job_id: str, wait_seconds: float = 0.0) -> Json:
        """Return a job. With `wait_seconds`, wait up to that time until the job has finished.

        Example:
            print(cluster.job(job_id, wait_seconds=10)["state"])
        """
        return self._get(f"jobs/{quoted(job_id)}", wait_seconds=wait_seconds, shape=shapes.jobs.Job)

    def queue(self) -> dict[str, int]:
        """Return the number of stored jobs in each state.

        Example:
            print(cluster.queue()["running"])
        """
        return dict(self._get("v1/queue", shape=shapes.jobs.QueueCounts)["tasks"])

    def history(self, limit: int = 50) -> list[Json]:
        """Return up to `limit` finished jobs, latest first. The limit is at most 500.

        Example:
            for job in cluster.history(limit=10):
                print(job["job_id"], job["state"])
        """
        return self._get_list("v1/queue/history", "tasks", shapes.jobs.Tasks, limit=limit)

    def follow(
        self, job_id: str, step: float = LONG_POLL_SECONDS, timeout: float | None = None, first: float | None = None
    ) -> Iterator[Json]:
        """Yield the job `job_id` repeatedly until it has finished. The last item is the finished job.

        The next item is yielded after at most `step` seconds. `first` replaces `step` for the first item.
        Raises TimedOut after `timeout` seconds.

        Example:
            for job in cluster.follow(job_id, step=1.0):
                print(job["progress"])
        """
        until = None if timeout is None else time.monotonic() + timeout
        patience = step if first is None else first
        while True:
            began = time.monotonic()
            left = patience if until is None else min(patience, until - began)
            patience = step
            job = self._get(
                f"jobs/{quoted(job_id)}",
                wait_seconds=max(left, 0.0),
                patience=self.wait_patience,
                shape=shapes.jobs.Job,
            )
            yield job
            if job["state"] in TERMINAL:
                return
            if left <= 0:
                raise TimedOut(f"job {job_id} is {job['state']} after {timeout:g} seconds; the job continues")
            sleep(max(0.0, min(left, began + _LEAST_STEP - time.monotonic())))

    def wait(self, job_id: str, timeout: float | None = None) -> Json:
        """Wait until a job has finished in any state, and return it. Raises TimedOut after `timeout` seconds.

        Example:
            job = cluster.wait(job_id, timeout=600)
            print(job["state"], job["error"])
        """
        *_, job = self.follow(job_id, timeout=timeout)
        return job

    def result(self, job_id: str, *, wait_seconds: float = 0.0, partial: bool = False) -> Json:
        """Return `{job_id, type, partial, units, total, result}`. Raises ApiError 409 while the job is unfinished.

        With `partial`, returns the merged result of the units computed so far. With `wait_seconds`, first waits up to
        that time until the job has finished.

        Example:
            print(cluster.result(job_id, wait_seconds=30)["result"])
        """
        return self._get(
            f"jobs/{quoted(job_id)}/result",
            wait_seconds=wait_seconds,
            partial="true" if partial else None,
            shape=shapes.jobs.Result,
        )

    def events(self, job_id: str) -> Iterator[Json]:
        """Yield the events of a job until it has finished. A broken connection is resumed.

        Example:
            for event in cluster.events(job_id):
                print(event["state"])
        """
        from threads_cluster.client.sse import Reader

        reader, enduring = Reader(), Patience(self.wait_patience)
        while True:
            try:
                seen = reader.last_id
                for event in self._stream(job_id, reader):
                    if reader.last_id != seen:
                        enduring.succeeded()
                    seen = reader.last_id
                    yield event
                    if event.get("state") in TERMINAL:
                        return
            except (httpx.TransportError, ApiError) as error:
                self.connection.endure(error, enduring)

    def _stream(self, job_id: str, reader: Reader) -> Iterator[Json]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": reader.last_id} if reader.last_id else {})
        with self.connection.stream(f"/api/jobs/{quoted(job_id)}/events", headers) as chunks:
            for message in reader.messages(chunks):
                yield answers.checked(answers.Event, bodies.parse(message), self.url)
        raise httpx.RemoteProtocolError("the stream ended before the job finished")

    def jobs(
        self,
        *,
        state: str | Sequence[str] | None = None,
        kind: str | None = None,
        search: str | None = None,
        tags: Sequence[str] = (),
        tenant: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        on_page: Callable[[Json], None] | None = None,
    ) -> Iterator[Json]:
        """Yield the jobs that meet all conditions, newest first. The next page is requested when it is needed.

        - `state`: a state, or several of which a job has one.
        - `search`: words with which the job's ID begins, or which its title, kind or tags contain.
        - `tags`: tags that the job has.
        - `since`, `until`: the time of submission, with a time zone.
        - `on_page`: called with each page. Its `matching` is the number of jobs on all pages, and `total` the number
          without conditions.
        - `kind`, `tenant`: the kind and the tenant of the job. Only tokens with the scope admin see other tenants.
        - `limit`: the maximum number of jobs to yield.

        Example:
            for job in cluster.jobs(state=["queued", "running"], tags=["sweep-7"]):
                print(job["job_id"], job["title"])
        """
        query: Json = {
            "state": [state] if isinstance(state, str) else list(state or ()),
            "type": kind,
            "search": search or None,
            "tag": _list(tags, "tags", "tags") or [],
            "tenant": tenant,
            "since": since and since.isoformat(),
            "until": until and until.isoformat(),
        }

        def ask(cursor: str | None, size: int) -> Json:
            page = self._get("jobs", **query, cursor=cursor, limit=size, shape=shapes.jobs.Jobs)
            if on_page is not None:
                on_page(page)
            return page

        return pages(self.url, ask, "jobs", limit)

    def cancel(self, job_id: str) -> Json:
        """Cancel a job and return it. Workers stop within a second, and finished units are kept.

        Example:
            cluster.cancel(job_id)
        """
        return self._post(f"jobs/{quoted(job_id)}/cancel", shape=shapes.jobs.Job)

    def pause(self, job_id: str) -> Json:
        """Pause a job and return it. Workers commit the units that they have computed.

        Example:
            cluster.pause(job_id)
        """
        return self._post(f"jobs/{quoted(job_id)}/pause", shape=shapes.jobs.Job)

    def resume(self, job_id: str, hold: bool = False) -> Json:
        """Resume a paused job. With `hold`, a job that exceeds a limit of its tenant is queued instead of rejected.

        Example:
            cluster.resume(job_id)
        """
        return self._post(f"jobs/{quoted(job_id)}/resume", shape=shapes.jobs.Job, hold=hold)

    def retry(self, job_id: str, hold: bool = False) -> Json:
        """Continue a failed or cancelled job where it stopped. Jobs that were skipped because of it wait again.

        `hold`: as in `resume`.

        Example:
            cluster.retry(job_id)
        """
        return self._post(f"jobs/{quoted(job_id)}/retry", shape=shapes.jobs.Job, hold=hold)

    def relations(self, job_id: str) -> Json:
        """Return the `parents` and the `children` of a job, and the jobs that were `skipped` because of it.

        Example:
            for job in cluster.relations(job_id)["parents"]:
                print(job["job_id"], job["state"])
        """
        return self._get(f"jobs/{quoted(job_id)}/relations", shape=shapes.jobs.Relations)

    def dead(self, job_id: str | None = None) -> list[Json]:
        """Return the permanently failed unit ranges with their errors, grouped by job. The default is all jobs.

        Example:
            for job in cluster.dead(job_id):
                print(job["job_id"], job["ranges"])
        """
        path = "dead" if job_id is None else f"jobs/{quoted(job_id)}/dead"
        return self._get_list(path, "jobs", shapes.jobs.DeadJobs)

    def retry_dead(self, job_id: str, first: int, hold: bool = False) -> Json:
        """Retry the permanently failed range of units that starts at unit `first`. Other ranges stay unchanged.

        `hold`: as in `resume`.

        Example:
            cluster.retry_dead(job_id, first=200)
        """
        return self._post(f"jobs/{quoted(job_id)}/dead/{first}/retry", shape=shapes.jobs.Job, hold=hold)

    def delete(self, job_id: str) -> None:
        """Delete a blocked or finished job and its result. Fails while other jobs depend on it.

        Example:
            cluster.delete(job_id)
        """
        self._ask("DELETE", f"/api/jobs/{quoted(job_id)}", shape=None)

    def status(self) -> Json:
        """Return the version of the cluster and its numbers of workers, lanes, jobs and waiting jobs.

        Example:
            print(cluster.status()["jobs"]["running"])
        """
        return self._get("status", shape=shapes.fleet.Status)

    def version(self) -> str:
        """Return the version of the cluster's software.

        Example:
            print(cluster.version())
        """
        return str(self._get("status", shape=answers.Version)["version"])

    def metrics(self) -> list[Json]:
        """Return `{name, type, help, samples}` of each metric, under the metric names of grid-cli.

        Example:
            for metric in cluster.metrics():
                print(metric["name"], metric["help"])
        """
        return self._get_list("metrics", "metrics", shapes.telemetry.Metrics)

    def tenants(self) -> list[Json]:
        """Return all tenants that the token can read, with their weights, limits and usage.

        Example:
            for tenant in cluster.tenants():
                print(tenant["tenant"], tenant["weight"])
        """
        return self._get_list("tenants", "tenants", shapes.tenants.Tenants)

    def tenant(self, name: str) -> Json:
        """Return one tenant by its name.

        Example:
            print(cluster.tenant(name="team-a")["weight"])
        """
        return self._get(f"tenants/{quoted(name)}", shape=shapes.tenants.Tenant)

    def put_tenant(
        self,
        name: str,
        *,
        weight: int = 1,
        max_lanes: int | None = None,
        max_jobs: int | None = None,
        max_units: Mapping[str, int] | None = None,
        max_gpu_seconds: int | None = None,
        max_stored_bytes: int | None = None,
        requires: Sequence[str] | None = None,
    ) -> Json:
        """Create the tenant `name`, or change its weight and limits.

        A limit of None means no limit.

        - `weight`: share of the cluster, relative to other tenants.
        - `max_lanes`, `max_jobs`: lanes that compute jobs of the tenant, and unfinished jobs.
        - `max_units`: units per day and by kind.
        - `max_gpu_seconds`: GPU seconds per day.
        - `max_stored_bytes`: bytes of artifacts.
        - `requires`: labels that a host needs to compute the tenant's jobs. An empty list allows all hosts, and None
          keeps the current labels.

        Example:
            cluster.put_tenant("team-a", weight=2, max_lanes=64, max_units={"command": 10_000})
        """
        body: Json = {"weight": weight, "max_lanes": max_lanes, "max_jobs": max_jobs}
        daily = {"max_units": max_units, "max_gpu_seconds": max_gpu_seconds, "max_stored_bytes": max_stored_bytes}
        body |= {cap: most for cap, most in daily.items() if most}  # Coordinators of version 0.1 reject unknown fields
        body |= {} if requires is None else {"requires": list(requires)}
        return self._ask("PUT", f"/api/tenants/{quoted(name)}", body=body, shape=shapes.tenants.Tenant)

    def delete_tenant(self, name: str) -> None:
        """Delete the tenant `name`, which has no queued or running jobs.

        Example:
            cluster.delete_tenant("team-a")
        """
        self._ask("DELETE", f"/api/tenants/{quoted(name)}", shape=None)

    def workers(self) -> list[Json]:
        """Return all live workers, and the workers that were lost during the last hour.

        Example:
            for worker in cluster.workers():
                print(worker["id"], worker["device"], worker["state"])
        """
        return self._get_list("workers", "workers", shapes.fleet.WorkerList)

    def hosts(self) -> list[Json]:
        """Return all hosts with live workers, and the hosts that were lost during the last hour.

        Example:
            for host in cluster.hosts():
                print(host["host"])
        """
        return self._get_list("hosts", "hosts", shapes.hosts.HostList)

    def host(self, name: str) -> Json:
        """Return the host `name` with its workers.

        Example:
            print(cluster.host("gpu1")["workers"])
        """
        return self._get(f"hosts/{quoted(name)}", shape=shapes.hosts.HostDetail)

    def best_host(self, config: str | Path | None = None) -> str:
        """Return the name of the least loaded host.

        Hosts of the cluster and of cluster.yaml are compared by load score. `config` replaces the path ./cluster.yaml,
        whose file is optional. Raises ClientError if no host is reachable.

        Example:
            print(cluster.best_host())
        """
        from threads_cluster.ssh import hosts

        return hosts.best(self.hosts, None if config is None else Path(config))

    def stream(self, seconds: int = 600) -> Json:
        """Return the times at which lanes computed jobs, as `{from, to, lanes, spans, ...}`.

        The times are those of the last `seconds`, up to an hour. More than 20,000 spans are merged within
        `resolution_seconds`.

        Example:
            print(len(cluster.stream(seconds=60)["spans"]))
        """
        stream = self._get("stream", shape=shapes.telemetry.Spans, seconds=seconds, spans=20_000)
        if any(span["lane"] >= len(stream["lanes"]) for span in stream["spans"]):
            raise UnexpectedAnswer(self.url, "a span refers to an unknown lane")
        if any(span["units"] is None and span["job_id"] is not None for span in stream["spans"]):
            raise UnexpectedAnswer(self.url, "a span of a job has no units")
        return stream

    def drain(self, worker: str, on: bool = True) -> Json:
        """Drain a worker: it finishes its leases and gets no new ones. `on=False` stops draining.

        Example:
            cluster.drain(worker["id"])
        """
        return self._post(f"workers/{quoted(worker)}/drain", {"on": on}, shape=shapes.fleet.Drained)

    def usage(self, tenant: str | None = None, days: int = 30) -> list[Json]:
        """Return the usage of tenants in the last `days`, newest first.

        Tokens with the scope admin see all tenants, or the one with the name `tenant`.

        Example:
            for usage in cluster.usage(days=7):
                print(usage["tenant"], usage["day"], usage["units"])
        """
        return self._get_list("usage", "usage", shapes.usage.TenantUsages, tenant=tenant, days=days)

    def audit(self, after: int | None = None, limit: int = 100) -> Json:
        """Return up to `limit` entries of the audit log, as `{lines, head, dropped, exported}`.

        They are the entries after the number `after`, or the last entries. Each line is a JSON object as text, which
        `threads_cluster.cli.audit` verifies.

        Example:
            for line in cluster.audit(limit=10)["lines"]:
                print(line)
        """
        return self._get("audit", after=after, limit=limit, shape=shapes.audit.AuditPart)

    def ask(self, /, job_id: str, question: str, **choice: Any) -> Json:
        """Ask a worker a question about the job `job_id`, and return the answer.

        `question` is a question that the kind of the job answers, such as the `trace` of a thread job. `choice` are the
        parameters of the question.

        Example:
            trace = cluster.ask(job_id, "trace", replica=3)
        """
        answer = self._get(f"jobs/{quoted(job_id)}/{quoted(question)}.json", **choice)
        if answer.keys() != {"job_id", "status"}:
            return answer
        answers.checked(shapes.jobs.Asked, answer, self.url)
        job = self.wait(answer["job_id"])
        if job["state"] != "done":
            raise JobEnded(job["job_id"], job["state"], job.get("error"))
        later: Json = self.result(answer["job_id"])["result"]
        return later

    def mark(self, kind: str, name: str) -> Json:
        """Return the range for which finished jobs of a kind have proved a fact.

        `name` is the name of the fact, such as `verified` for the kind collatz.

        Example:
            print(cluster.mark("collatz", "verified"))
        """
        return self._get(f"kinds/{quoted(kind)}/marks/{quoted(name)}", shape=shapes.jobs.Mark)

    def kinds(self) -> list[Json]:
        """Return `{type, summary, schema, example, limits}` for each kind of job.

        Example:
            for kind in cluster.kinds():
                print(kind["type"], kind["example"])
        """
        return self._get_list("job-types", "kinds", shapes.jobs.Kinds)

    # -- access ------------------------------------------------------------------------------------------------------

    def session(self) -> Json:
        """Return the tenant and the scopes of the token.

        The response is `{tenant, token_id, token_name, scopes, by_cookie, token_needed}`.

        Example:
            print(cluster.session()["scopes"])
        """
        return self._ask("GET", "/api/session", shapes.access.Session)

    def tokens(self) -> list[Json]:
        """Return all API tokens without their secrets. Requires the scope admin.

        Example:
            for token in cluster.tokens():
                print(token["id"], token["name"])
        """
        return self._get_list("tokens", "tokens", shapes.access.TokenList)

    def create_token(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        tenant: str = "default",
        ttl_seconds: int | None = None,
        labels: Sequence[str] = (),
    ) -> Json:
        """Create an API token, and return `{token, id, name, tenant, scopes, expires, labels}`.

        Only this response contains the token. It expires after `ttl_seconds`, or never. `labels` describe the host of a
        worker, or the host of an invitation. Tenants can require labels.

        Example:
            print(cluster.create_token("ci", ["read", "submit"], ttl_seconds=3600)["token"])
        """
        body: Json = {"name": name, "scopes": list(scopes), "tenant": tenant, "ttl_seconds": ttl_seconds}
        body |= {"labels": list(labels)} if labels else {}
        # A retry could create a second token.
        return self._ask("POST", "/api/tokens", shapes.access.CreatedToken, body=body, patience=0)

    def revoke_token(self, token_id: str) -> None:
        """Revoke an API token. Requires the scope admin.

        Example:
            cluster.revoke_token(token_id)
        """
        self._ask("DELETE", f"/api/tokens/{quoted(token_id)}", None)

    def secrets(self, tenant: str | None = None) -> list[Json]:
        """Return a tenant's secrets without their values. Requires the scope run, or admin for another tenant.

        Example:
            for secret in cluster.secrets():
                print(secret["name"])
        """
        return self._get_list("secrets", "secrets", shapes.secrets.SecretList, tenant=tenant)

    def put_secret(self, name: str, value: str, *, tenant: str | None = None) -> Json:
        """Set the secret `name`, and return it without its value. The API never returns values of secrets.

        Example:
            cluster.put_secret("HF_TOKEN", value, tenant="team-a")
        """
        body = {"value": value}
        return self._ask("PUT", f"/api/secrets/{quoted(name)}", shapes.secrets.Secret, body=body, tenant=tenant)

    def delete_secret(self, name: str, *, tenant: str | None = None) -> None:
        """Delete the secret `name` of a tenant.

        Example:
            cluster.delete_secret("HF_TOKEN")
        """
        self._ask("DELETE", f"/api/secrets/{quoted(name)}", None, tenant=tenant)

    def schedules(self, *, tenant: str | None = None) -> list[Json]:
        """Return all schedules of a tenant, sorted by name.

        Example:
            for schedule in cluster.schedules():
                print(schedule["name"], schedule["next_run"])
        """
        return self._get_list("schedules", "schedules", shapes.schedules.ScheduleList, tenant=tenant)

    def schedule(self, name: str, *, tenant: str | None = None) -> Json:
        """Return the schedule `name` with its job or workflow and its `next_runs`.

        Example:
            print(cluster.schedule("nightly", tenant="team-a")["next_runs"])
        """
        return self._get(f"schedules/{quoted(name)}", shape=shapes.schedules.Schedule, tenant=tenant)

    def add_schedule(
        self,
        name: str,
        job: Mapping[str, Any] | None = None,
        *,
        workflow: str | None = None,
        every_seconds: int | None = None,
        cron: str | None = None,
        timezone: str | None = None,
        overlap: bool = False,
        catch_up: str | None = None,
    ) -> Json:
        """Create the schedule `name` for a job or a workflow, and return it with its `next_runs`.

        `job` has the fields of a job in `submit_batch`. `workflow` is the text of a workflow. Raises BadArgument unless
        exactly one of them is set.

        - `every_seconds`, `cron`: the interval, or five fields such as "0 3 * * *".
        - `timezone`: the time zone of `cron`, such as "Europe/Berlin".
        - `overlap`: start a run even if the previous run has not finished.
        - `catch_up`: missed runs that are submitted later: "last" (only the last one) or "none".

        Example:
            job = {"type": "command", "parameters": {"command": ["./backup.sh"]}}
            cluster.add_schedule("nightly", job, cron="0 3 * * *")
        """
        if (job is None) == (workflow is None):
            raise BadArgument("a schedule needs either a job or a workflow")
        what: Json = {"workflow": workflow} if job is None else {"job": wire(dict(job))}
        given = {"every_seconds": every_seconds, "cron": cron, "timezone": timezone, "catch_up": catch_up}
        chosen = {field: value for field, value in given.items() if value is not None}
        body = {"name": name, "overlap": overlap, **what, **chosen}
        # A retry would fail if the first attempt had created the schedule.
        return self._ask("POST", "/api/schedules", shapes.schedules.Schedule, body=body, patience=0)

    def pause_schedule(self, name: str, *, tenant: str | None = None) -> Json:
        """Pause the schedule `name` until `resume_schedule` is called.

        Example:
            cluster.pause_schedule("nightly", tenant="team-a")
        """
        return self._ask("POST", f"/api/schedules/{quoted(name)}/pause", shapes.schedules.Schedule, tenant=tenant)

    def resume_schedule(self, name: str, *, tenant: str | None = None) -> Json:
        """Resume the paused schedule `name`.

        Example:
            cluster.resume_schedule("nightly", tenant="team-a")
        """
        return self._ask("POST", f"/api/schedules/{quoted(name)}/resume", shapes.schedules.Schedule, tenant=tenant)

    def run_schedule(self, name: str, *, tenant: str | None = None) -> str:
        """Submit the job or workflow of the schedule `name` now, and return its ID.

        Example:
            job_id = cluster.run_schedule("nightly", tenant="team-a")
        """
        # A retry could submit a second job.
        path = f"/api/schedules/{quoted(name)}/run"
        started = self._ask("POST", path, shapes.schedules.Started, patience=0, tenant=tenant)
        return str(started["job_id"] or started.get("workflow_id"))

    def delete_schedule(self, name: str, *, tenant: str | None = None) -> None:
        """Delete the schedule `name`. Jobs that it submitted are not affected.

        Example:
            cluster.delete_schedule("nightly", tenant="team-a")
        """
        self._ask("DELETE", f"/api/schedules/{quoted(name)}", None, tenant=tenant)

    def webhooks(self, state: str | None = None, limit: int = 100, *, tenant: str | None = None) -> Json:
        """Return up to `limit` webhook deliveries, latest first, as `{deliveries, counts}`.

        `state` selects one state.

        Example:
            print(cluster.webhooks(state="dead", tenant="team-a")["deliveries"])
        """
        return self._get("webhooks", shape=shapes.webhooks.DeliveryList, state=state, limit=limit, tenant=tenant)

    def retry_webhook(self, delivery_id: str, *, tenant: str | None = None) -> Json:
        """Retry a webhook delivery now, and return it. Deliveries that have failed permanently can be retried, too.

        Example:
            cluster.retry_webhook(delivery_id, tenant="team-a")
        """
        path = f"/api/webhooks/{quoted(delivery_id)}/retry"
        return self._ask("POST", path, shapes.webhooks.Delivery, tenant=tenant)

    def webhook_key(self, *, tenant: str | None = None) -> str:
        """Return the key that signs webhooks. Requires the scope submit, and adds an entry to the audit log.

        Example:
            key = cluster.webhook_key(tenant="team-a")
        """
        return str(self._get("webhooks/key", shape=shapes.webhooks.SigningKey, tenant=tenant)["key"])

    def test_webhook(self, url: str) -> Json:
        """Send one test message to a URL, and return `{delivered, status, error, seconds}`.

        Example:
            print(cluster.test_webhook(url="https://example.org/hook")["delivered"])
        """
        return self._ask("POST", "/api/webhooks/test", shapes.webhooks.Tried, body={"url": url}, extra_seconds=20.0)

    def rotate_secrets(self) -> Json:
        """Encrypt the secrets of all tenants with the first key of SECRETS_KEY. Return `{key, rotated, unreadable}`.

        Requires the scope admin.

        Example:
            print(cluster.rotate_secrets()["rotated"])
        """
        return self._ask("POST", "/api/rotate-secrets", shapes.secrets.Rotated)

    def login_code(self) -> Json:
        """Create a code with which one browser can log in once. Return `{code, path, seconds}`.

        Example:
            print(cluster.url + cluster.login_code()["path"])
        """
        return self._ask("POST", "/api/login-codes", shapes.access.LoginCode, patience=0)

    def _get(self, path: str, wait_seconds: float = 0.0, **query: Any) -> Json:
        waiting: Json = {"wait_seconds": f"{wait_seconds:g}", "extra_seconds": wait_seconds} if wait_seconds else {}
        return self._ask("GET", f"/api/{path}", **query, **waiting)

    def _get_list(self, path: str, field: str, shape: Any, **query: Any) -> list[Json]:
        rows: list[Json] = self._get(path, shape=shape, **query)[field]
        return rows

    def _post(self, path: str, body: Any = None, shape: Any = answers.Anything, *, hold: bool = False) -> Json:
        query = {"hold": "true"} if hold else {}
        return self._ask("POST", f"/api/{path}", body=body, shape=shape, **query)

    def _ask(self, method: str, path: str, shape: Any = answers.Anything, **how: Any) -> Json:
        """Return the response after validating it against `shape`. If `shape` is None, skip the validation."""
        answer: Json = self.connection.ask(method, path, shape, **({"patience": self.patience} | how))
        return answer

    def _one_each(self, wanted: int, answer: Json) -> list[Json]:
        several: list[Json] = answer["answers"]
        if len(several) != wanted:
            raise UnexpectedAnswer(self.url, f"the server returned {len(several)} answers for {wanted} requests")
        return several


def submission(kind: str, parameters: Mapping[str, Any] | None, *, idempotency_key: str | None, **choices: Any) -> Json:
    """Create the body of a submission. It contains exact integers, the options that are set, and an idempotency key."""
    if idempotency_key == "":
        raise BadArgument("must not be empty", "idempotency_key")
    several = {"after": "job IDs", "after_any": "job IDs", "tags": "tags"}
    choices |= {
        name: _list(choices[name], name, what) for name, what in several.items() if choices.get(name) is not None
    }
    options = {name: value for name, value in choices.items() if value is not None}
    key = idempotency_key or uuid.uuid4().hex
    return {"type": kind, "parameters": wire(dict(parameters or {})), "idempotency_key": key} | options


def _list(several: Any, name: str, what: str) -> list[str] | None:
    """Return strings as a list, or None if there are none. Raises BadArgument if the argument is a single string."""
    if isinstance(several, str):
        raise BadArgument(f"must be a list of {what}", name)
    return list(several) or None


def wire(value: Any) -> Any:
    """Convert integers beyond 2^53 to decimal strings at any depth, because some JSON readers would round them.

    Raises BadArgument if the value is nested too deeply or an integer has more than 100,000 digits.
    """
    try:
        return _wired(value)
    except (RecursionError, ValueError) as error:
        raise BadArgument(f"the job cannot be sent: {error}") from None


def _wired(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _wired(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_wired(inner) for inner in value]
    return numbers.exact(value) if isinstance(value, int) else value
