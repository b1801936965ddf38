"""Asynchronous Python client for a cluster.

    from threads_cluster import AsyncCluster

    async with AsyncCluster() as cluster:
        job = await cluster.submit("thread", {"replicas": 10_000})
        async for event in cluster.events(job["job_id"]):
            print(event["state"])

The methods have the arguments, results and errors of `Cluster`. They use no threads, so that thousands of tasks can
wait for jobs at the same time. Only an executor has a few threads, for all its calls. The code of each method is the
code of the synchronous client (see `suspension`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx

from threads_cluster.client import suspension
from threads_cluster.client.api import Cluster
from threads_cluster.client.artifacts import Artifacts
from threads_cluster.client.async_methods import Wrapper, awaited, delegated, iterated
from threads_cluster.client.attachments import Attachment
from threads_cluster.client.connection import LIMITS
from threads_cluster.client.models import Data, Models
from threads_cluster.client.profiles import Profile, Profiles
from threads_cluster.client.programs import Programs
from threads_cluster.client.services import Services
from threads_cluster.client.suspension import SuspendingTransport
from threads_cluster.client.workflows import Workflows
from threads_cluster.errors import ClientError

if TYPE_CHECKING:
    from threads_cluster.client.calling.references import Reference


class AsyncArtifacts(Wrapper):
    """Asynchronous version of `Artifacts`. Reading and writing local files blocks the event loop."""

    put = awaited(Artifacts.put)
    send = awaited(Artifacts.send)
    store = awaited(Artifacts.store)
    list = iterated(Artifacts.list)
    info = awaited(Artifacts.info)
    files = awaited(Artifacts.files)
    fetch = awaited(Artifacts.fetch)
    fetch_part = awaited(Artifacts.fetch_part)
    entry = awaited(Artifacts.entry)
    read = awaited(Artifacts.read)
    part = awaited(Artifacts.part)
    pieces = iterated(Artifacts.pieces)
    delete = awaited(Artifacts.delete)


class AsyncPrograms(Wrapper):
    """Asynchronous version of `Programs`."""

    submit = awaited(Programs.submit)
    require_runner = awaited(Programs.require_runner)
    run = awaited(Programs.run)
    map = iterated(Programs.map)
    unit = awaited(Programs.unit)
    units = iterated(Programs.units)
    describe = awaited(Programs.describe)
    page = awaited(Programs.page)
    states = awaited(Programs.states)
    counts = awaited(Programs.counts)
    finished = iterated(Programs.finished)
    value = awaited(Programs.value)
    follow = iterated(Programs.follow)
    current = iterated(Programs.current)
    show_rest = awaited(Programs.show_rest)
    fetch_unit = awaited(Programs.fetch_unit)
    fetch = awaited(Programs.fetch)


class AsyncWorkflows(Wrapper):
    """Asynchronous version of `Workflows`."""

    submit = awaited(Workflows.submit)
    validate = awaited(Workflows.validate)
    list = iterated(Workflows.list)
    get = awaited(Workflows.get)
    action = awaited(Workflows.action)
    follow = iterated(Workflows.follow)
    wait = awaited(Workflows.wait)
    cancel = awaited(Workflows.cancel)
    retry = awaited(Workflows.retry)
    approve = awaited(Workflows.approve)
    reject = awaited(Workflows.reject)
    delete = awaited(Workflows.delete)


class AsyncProfiles(Wrapper):
    """Asynchronous version of `Profiles`."""

    start = awaited(Profiles.start)
    list = awaited(Profiles.list)
    get = awaited(Profiles.get)
    stop = awaited(Profiles.stop)
    recover = awaited(Profiles.recover)
    delete = awaited(Profiles.delete)
    follow = iterated(Profiles.follow)
    wait = awaited(Profiles.wait)
    fetch = awaited(Profiles.fetch)
    summary = awaited(Profiles.summary)


class AsyncProfile(Wrapper):
    """Asynchronous version of `Profile`: an asynchronous context manager that records a profile during a block."""

    async def __aenter__(self) -> Self:
        await suspension.run(self._wrapped.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await suspension.run(self._wrapped.__exit__, kind, error, at)

    status = awaited(Profile.status)
    summary = awaited(Profile.summary)


class AsyncServices(Wrapper):
    """Asynchronous version of `Services`."""

    serve = awaited(Services.serve)
    list = awaited(Services.list)
    get = awaited(Services.get)
    scale = awaited(Services.scale)
    restart = awaited(Services.restart)
    stop = awaited(Services.stop)
    delete = awaited(Services.delete)
    engines = awaited(Services.engines)
    access = awaited(Services.access)
    open = awaited(Services.open)
    deploy = awaited(Services.deploy)
    infer = awaited(Services.infer)
    follow = iterated(Services.follow)
    wait = awaited(Services.wait)


class AsyncModels(Wrapper):
    """Asynchronous version of `Models`."""

    list = awaited(Models.list)
    get = awaited(Models.get)
    register = awaited(Models.register)
    download = awaited(Models.download)
    fetch = awaited(Models.fetch)
    copy = awaited(Models.copy)
    move = awaited(Models.move)
    delete = awaited(Models.delete)


class AsyncData(Wrapper):
    """Asynchronous version of `Data`."""

    list = awaited(Data.list)
    get = awaited(Data.get)
    create = awaited(Data.create)
    move = awaited(Data.move)
    transfer = awaited(Data.transfer)
    delete = awaited(Data.delete)


class AsyncAttachment(Wrapper):
    """Asynchronous version of `Attachment`. Tasks can read and write at the same time."""

    ask = awaited(Attachment.ask)
    read = awaited(Attachment.read)
    write = awaited(Attachment.write)
    leave = awaited(Attachment.leave)


class _SuspendingCluster(Cluster):
    """Cluster whose calls suspend the coroutine that runs them."""

    @staticmethod
    def _open_transport(trusted: ssl.SSLContext) -> httpx.BaseTransport:
        return SuspendingTransport(httpx.AsyncHTTPTransport(verify=trusted, trust_env=False, limits=LIMITS))


class AsyncCluster(Wrapper):
    """Connection to a cluster for asyncio. Use it as an asynchronous context manager, in one event loop.

    Requests are retried and fail as in `Cluster`. `Cluster` has one more method, `dask`, whose client blocks.

        async with AsyncCluster() as cluster:
            print(await cluster.run(["echo", "hello"]))
    """

    _wrapped: Cluster

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        timeout: float = 10.0,
        *,
        patience: float = 10.0,
        wait_patience: float = 300.0,
        context: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Prepare a connection.

        `url`, `token`, `timeout`, `patience`, `wait_patience`, `context` and `transport` are the arguments of
        `Cluster`, which raises the same errors.
        """
        suspending = None if transport is None else SuspendingTransport(transport)
        how: dict[str, Any] = {"patience": patience, "wait_patience": wait_patience, "context": context}
        super().__init__(_SuspendingCluster(url, token, timeout, **how, transport=suspending))
        self.url = self._wrapped.url
        self._connect = partial(Cluster, url, token, timeout, **how)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    @cached_property
    def artifacts(self) -> AsyncArtifacts:
        """Methods for folders and files that are stored in the cluster."""
        return AsyncArtifacts(self._wrapped.artifacts)

    @cached_property
    def programs(self) -> AsyncPrograms:
        """Methods for programs on runners."""
        return AsyncPrograms(self._wrapped.programs)

    @cached_property
    def workflows(self) -> AsyncWorkflows:
        """Methods for workflows."""
        return AsyncWorkflows(self._wrapped.workflows)

    @cached_property
    def profiles(self) -> AsyncProfiles:
        """Methods for profiles of hosts and GPUs."""
        return AsyncProfiles(self._wrapped.profiles)

    @cached_property
    def services(self) -> AsyncServices:
        """Methods for services."""
        return AsyncServices(self._wrapped.services)

    @cached_property
    def models(self) -> AsyncModels:
        """Methods for models."""
        return AsyncModels(self._wrapped.models)

    @cached_property
    def data(self) -> AsyncData:
        """Methods for chunks of data."""
        return AsyncData(self._wrapped.data)

    def profile(self, name: str, **how: Any) -> AsyncProfile:
        """Record a profile of hosts and GPUs during an `async with` block.

        `name` and `how` are the arguments of `Cluster.profile`.

        Example:
            async with cluster.profile("noon", hz=10) as profile:
                await cluster.run(["python3", "train.py"], files=".")
            print(await profile.summary())
        """
        return AsyncProfile(self._wrapped.profile(name, **how))

    def attachment(self, job_id: str) -> AsyncAttachment:
        """Return a shell in a unit of the job `job_id`. Tasks can read its output and send its input at the same time.

        Example:
            shell = AsyncCluster().attachment(job_id)
        """
        return AsyncAttachment(self._wrapped.attachment(job_id, self._wrapped))

    def notify(self, notice: Callable[[ClientError], None], silence: Callable[[float], None] | None = None) -> None:
        """Set callbacks for outages (`notice`) and late responses, as `Cluster.notify` does.

        With `silence`, each request uses a thread.

        Example:
            cluster.notify(lambda error: print("retrying:", error))
        """
        self._wrapped.notify(notice, silence)

    @property
    def submitted(self) -> bool:
        """Return True if this connection has sent a submission, even if it received no response."""
        return self._wrapped.submitted

    @cached_property
    def _threaded(self) -> Cluster:
        """Cluster for executors, which have a few threads each."""
        return self._connect()

    async def close(self) -> None:
        """Close the connections.

        Example:
            cluster = AsyncCluster()
            await cluster.close()
        """
        await suspension.run(self._wrapped.close)
        if "_threaded" in self.__dict__:
            self._threaded.close()

    executor = delegated(Cluster.executor)
    task = delegated(Cluster.task)

    async def put(self, value: Any) -> Reference:
        """Store a Python value in the cluster, as `Cluster.put` does. A thread pickles and sends it.

        Example:
            table = await cluster.put(numpy.random.rand(10_000, 1_000))
        """
        return await asyncio.to_thread(self._threaded.put, value)

    async def best_host(self, config: str | Path | None = None) -> str:
        """Return the name of the least loaded host, as `Cluster.best_host` does with `config`. Uses SSH in a thread.

        Example:
            print(await cluster.best_host())
        """
        return await asyncio.to_thread(self._threaded.best_host, config)

    # -- jobs --------------------------------------------------------------------------------------------------------

    submit = awaited(Cluster.submit)
    submit_batch = awaited(Cluster.submit_batch)
    estimate = awaited(Cluster.estimate)
    run = awaited(Cluster.run)
    map = iterated(Cluster.map)
    job = awaited(Cluster.job)
    jobs = iterated(Cluster.jobs)
    follow = iterated(Cluster.follow)
    events = iterated(Cluster.events)
    wait = awaited(Cluster.wait)
    result = awaited(Cluster.result)
    results = awaited(Cluster.results)
    ask = awaited(Cluster.ask)
    cancel = awaited(Cluster.cancel)
    pause = awaited(Cluster.pause)
    resume = awaited(Cluster.resume)
    retry = awaited(Cluster.retry)
    relations = awaited(Cluster.relations)
    dead = awaited(Cluster.dead)
    retry_dead = awaited(Cluster.retry_dead)
    delete = awaited(Cluster.delete)
    queue = awaited(Cluster.queue)
    history = awaited(Cluster.history)
    kinds = awaited(Cluster.kinds)
    mark = awaited(Cluster.mark)

    # -- models ------------------------------------------------------------------------------------------------------

    deploy = awaited(Cluster.deploy)
    infer = awaited(Cluster.infer)

    # -- machines ----------------------------------------------------------------------------------------------------

    status = awaited(Cluster.status)
    version = awaited(Cluster.version)
    metrics = awaited(Cluster.metrics)
    workers = awaited(Cluster.workers)
    hosts = awaited(Cluster.hosts)
    host = awaited(Cluster.host)
    stream = awaited(Cluster.stream)
    drain = awaited(Cluster.drain)

    # -- access ------------------------------------------------------------------------------------------------------

    session = awaited(Cluster.session)
    login_code = awaited(Cluster.login_code)
    tokens = awaited(Cluster.tokens)
    create_token = awaited(Cluster.create_token)
    revoke_token = awaited(Cluster.revoke_token)
    tenants = awaited(Cluster.tenants)
    tenant = awaited(Cluster.tenant)
    put_tenant = awaited(Cluster.put_tenant)
    delete_tenant = awaited(Cluster.delete_tenant)
    usage = awaited(Cluster.usage)
    audit = awaited(Cluster.audit)
    secrets = awaited(Cluster.secrets)
    put_secret = awaited(Cluster.put_secret)
    delete_secret = awaited(Cluster.delete_secret)
    rotate_secrets = awaited(Cluster.rotate_secrets)

    # -- schedules and webhooks ----------------------------------------------------------------------------------------

    schedules = awaited(Cluster.schedules)
    schedule = awaited(Cluster.schedule)
    add_schedule = awaited(Cluster.add_schedule)
    pause_schedule = awaited(Cluster.pause_schedule)
    resume_schedule = awaited(Cluster.resume_schedule)
    run_schedule = awaited(Cluster.run_schedule)
    delete_schedule = awaited(Cluster.delete_schedule)
    webhooks = awaited(Cluster.webhooks)
    retry_webhook = awaited(Cluster.retry_webhook)
    webhook_key = awaited(Cluster.webhook_key)
    test_webhook = awaited(Cluster.test_webhook)
