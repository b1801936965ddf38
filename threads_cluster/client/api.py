"""The cluster from Python.

    from threads_cluster.client.api import Cluster

    with Cluster() as cluster:
        print(cluster.run("collatz", {"start_number": 1, "number_count": 1_000_000})["delay"])

        job = cluster.submit("thread", {"replicas": 10_000})
        cluster.wait(job["job_id"])
        print(cluster.result(job["job_id"])["result"])

Answers are the API's JSON as dicts. Integers beyond 2^53 are decimal strings there: `int(text)` is exact.
Integers of any size may be sent as they are. What goes wrong is a `threads_cluster.errors.ClientError` of one line.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, overload

import httpx
from pydantic import ValidationError

from threads_cluster import settings
from threads_cluster.client import answers, bodies, logins
from threads_cluster.client.artifacts import Artifacts
from threads_cluster.client.attachments import Attachment
from threads_cluster.client.connection import Connection, Patience, shown_address
from threads_cluster.client.models import Data, Models
from threads_cluster.client.profiles import Profile, Profiles
from threads_cluster.client.programs import Ended, Mapped, Program, Programs
from threads_cluster.client.resource import pages, quoted
from threads_cluster.client.services import Services
from threads_cluster.client.sse import Reader
from threads_cluster.client.workflows import Workflows
from threads_cluster.errors import (
    ApiError,
    BadArgument,
    ClientError,
    JobEnded,
    Misconfigured,
    TimedOut,
    UnexpectedAnswer,
)
from threads_protocol import numbers
from threads_protocol.answers import access as access_answers
from threads_protocol.answers import audit as audit_answers
from threads_protocol.answers import fleet as fleet_answers
from threads_protocol.answers import hosts as host_answers
from threads_protocol.answers import jobs as job_answers
from threads_protocol.answers import schedules as schedule_answers
from threads_protocol.answers import secrets as secret_answers
from threads_protocol.answers import telemetry as telemetry_answers
from threads_protocol.answers import tenants as tenant_answers
from threads_protocol.answers import usage as usage_answers
from threads_protocol.answers import webhooks as webhook_answers
from threads_protocol.states import TERMINAL

Json: TypeAlias = dict[str, Any]

#: Longest a long poll may wait for one answer; the API's limit.
LONG_POLL_SECONDS = 30.0
#: Seconds between two looks at a job at least, whatever the other side answers.
_LEAST_STEP = 0.1


class Cluster:
    """A connection to a cluster; use it as a context manager, from one thread.

    A cluster that never answered is reported at once. One that has answered is expected back: calls try again for
    `patience` seconds, waiting for a job for `wait_patience` seconds, so a restart of a coordinator goes unnoticed.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        timeout: float = 10.0,
        *,
        patience: float = 10.0,
        wait_patience: float = 300.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`url` defaults to CLUSTER_URL, then to the local cluster of this checkout.

        `token` defaults to CLUSTER_TOKEN, then to what `cluster login` kept for that address, then to the local
        cluster's own. Misconfigured when they cannot be used.
        """
        stated = environment()
        place = url or stated.url()
        kept = logins.credential_for(shown_address(place), stated) if token is None else logins.given(token)
        self.connection = Connection(place, kept, timeout, transport)
        self.url = self.connection.url
        self.patience = patience
        self.wait_patience = wait_patience

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @cached_property
    def artifacts(self) -> Artifacts:
        """Folders and files that are kept in the cluster: `put`, `list`, `info`, `fetch`, `delete`."""
        return Artifacts(self.connection, self.patience)

    @cached_property
    def programs(self) -> Programs:
        """Programs that runners execute: `submit`, `units`, `fetch` and what `run` and `map` do."""
        return Programs(self, self.connection)

    def attachment(self, job_id: str, typing: Cluster) -> Attachment:
        """A shell beside a unit of a job; what is typed goes over another connection, from another thread."""
        return Attachment(self.connection, typing.connection, quoted(job_id))

    @cached_property
    def workflows(self) -> Workflows:
        """Graphs of actions: `submit`, `validate`, `list`, `get`, `wait`, `cancel`, `retry`, `approve`, `delete`."""
        return Workflows(self.connection, self)

    @cached_property
    def profiles(self) -> Profiles:
        """Telemetry that workers record: `start`, `list`, `get`, `stop`, `wait`, `fetch`, `summary`, `delete`."""
        return Profiles(self.connection, self)

    def profile(self, name: str, **how: Any) -> Profile:
        """A profile around a `with` block, `how` as of `profiles.start`; afterwards it has a `summary`."""
        return Profile(self.profiles, name, **how)

    @cached_property
    def services(self) -> Services:
        """Replicas of engines that stay up: `serve`, `list`, `get`, `wait`, `scale`, `restart`, `stop`, `delete`."""
        return Services(self.connection, self)

    @cached_property
    def models(self) -> Models:
        """Artifacts with weights and a name: `list`, `get`, `register`, `download`, `copy`, `move`, `delete`."""
        return Models(self.connection, self)

    def dask(self, workers: int = 4, *, name: str | None = None, **how: Any) -> AbstractContextManager[Any]:
        """A client of Dask's on workers of this cluster, for a `with` block: `client.submit(function, 10).result()`.

        They are served for the block, and deleted at its end; with `name`, those of that service are used and stay.
        `how`: `threads` and `memory_mib` of each, `requirements`, and `timeout`, seconds until they are there (300).
        Needs `distributed` here, of the version that the workers have, and the scope run.
        """
        from threads_cluster.client import dask_clients

        return dask_clients.connected(self, workers, name, **how)

    @cached_property
    def data(self) -> Data:
        """Chunks of data: `create`, `list`, `get`, `move`, `transfer`, `delete`."""
        return Data(self.connection, self)

    def deploy(self, model_name: str, **how: Any) -> Json:
        """Serve a model, as `services.deploy`; `{deployment_id, status}`."""
        return self.services.deploy(model_name, **how)

    def infer(self, deployment_id: str, prompt: str, **how: Any) -> Json:
        """Have a model continue a text, as `services.infer`; `{text, usage, deployment_id}`."""
        return self.services.infer(deployment_id, prompt, **how)

    def notify(self, notice: Callable[[ClientError], None], silence: Callable[[float], None] | None = None) -> None:
        """Give `notice` the error once an outage, when calls that are tried again have not worked for 3 s.

        `silence` is given, from another thread, for how many seconds a call goes on at most whose answer is 3 s late.
        """
        self.connection.notice, self.connection.silence = notice, silence

    @property
    def submitted(self) -> bool:
        """Whether this connection may have submitted something, with or without an answer."""
        return self.connection.submitted

    def close(self) -> None:
        self.connection.http.close()

    def submit(
        self,
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
    ) -> Json:
        """`{job_id, status, estimated_wait_seconds, notes}`.

        At most `max_running` lanes compute it at once. It fails `timeout_seconds` after it started.
        It starts once the jobs `after` are done and those `after_any` have ended, however; when one of `after` fails or
        is cancelled it is skipped. Together at most 1,000 ids.
        `hold`: where a cap of its tenant refuses it, it is queued until there is room.
        `notify`: a URL that is sent a signed POST when it has ended; docs/webhooks.md.
        A key is drawn when none is given, so that sending again after a broken connection never submits twice.
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
            ),
            shape=job_answers.Submitted,
        )

    @overload
    def run(
        self, kind: str, parameters: Mapping[str, Any] | None = None, *, timeout: float | None = None, **choices: Any
    ) -> Json: ...

    @overload
    def run(
        self, kind: Sequence[str], *, files: str | Path | None = None, timeout: float | None = None, **choices: Any
    ) -> Ended: ...

    def run(
        self,
        kind: str | Sequence[str],
        parameters: Mapping[str, Any] | None = None,
        *,
        files: str | Path | None = None,
        timeout: float | None = None,
        **choices: Any,
    ) -> Json | Ended:
        """Submits a job, waits for it, and gives its result; `choices` are those of `submit`.

        A short job costs one exchange with the cluster. TimedOut after `timeout` seconds, JobEnded when it failed or
        was cancelled. A key is drawn as in `submit`, so a broken connection never makes a second job.

        In the place of a kind, the words of a command run as a program, with a folder of `files` around it; `choices`
        are then the fields of `programs.Program`, and the answer is a `programs.Ended`, whatever its exit code.
        """
        if not isinstance(kind, str):
            fields: Json = {"command": kind, "retries": 0} | choices
            return self.programs.run(Program(**fields), files=files, timeout=timeout)
        return self._run_kind(kind, parameters, timeout, choices)

    def _run_kind(self, kind: str, parameters: Mapping[str, Any] | None, timeout: float | None, choices: Json) -> Json:
        body = submission(kind, parameters, **({"idempotency_key": None} | choices))
        patience = LONG_POLL_SECONDS if timeout is None else max(0.0, min(timeout, LONG_POLL_SECONDS))
        began = time.monotonic()
        answer = self._ask(
            "POST",
            "/api/submit",
            body=body,
            wait_seconds=f"{patience:g}",
            extra_seconds=patience,
            shape=job_answers.Submitted,
        )
        if "result" in answer:
            return answer["result"]  # type: ignore[no-any-return]
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
        job = self.wait(answer["job_id"], timeout=left)
        if job["state"] != "done":
            raise JobEnded(job["job_id"], job["state"], job.get("error"))
        result: Json = self.result(answer["job_id"])["result"]
        return result

    def map(
        self,
        function: str | Callable[..., Any],
        values: Iterable[Any],
        *,
        files: str | Path | None = ".",
        **choices: Any,
    ) -> Mapped:
        """Call `module:function` of the folder `files` with each value, on the runners; iterate over what they return.

        A call has a fresh interpreter; values come and go as JSON. `choices`: fields of `programs.Program`.
        """
        return self.programs.map(function, values, files=files, **choices)

    def submit_batch(self, jobs: Sequence[Mapping[str, Any]]) -> list[Json]:
        """Up to 1,000 jobs, each as the API's submit takes it; answers in the same order, `error` in those refused."""
        keyed = [{"idempotency_key": uuid.uuid4().hex} | wire(dict(job)) for job in jobs]
        return self._one_each(len(keyed), self._post("submit-batch", {"jobs": keyed}, shape=job_answers.SubmittedBatch))

    def results(self, job_ids: Sequence[str], wait_seconds: float = 0.0) -> list[Json]:
        """States and results of up to 1,000 jobs; answers when all have ended or the time is over.

        Results that are together too large for one answer are asked for one by one.
        """
        body: Json = {"job_ids": list(job_ids), "wait_seconds": wait_seconds}
        asked = self._ask("POST", "/api/results", body=body, extra_seconds=wait_seconds, shape=job_answers.ManyResults)
        several = self._one_each(len(body["job_ids"]), asked)
        for job_id, answer in zip(body["job_ids"], several, strict=True):
            if answer.pop("result_at", None):
                answer.pop("result_bytes", None)
                answer["result"] = self.result(job_id)["result"]
        return several

    def job(self, job_id: str, wait_seconds: float = 0.0) -> Json:
        """The job; with `wait_seconds` as soon as it has ended, or as it is when the time is over."""
        return self._get(f"jobs/{quoted(job_id)}", wait_seconds=wait_seconds, shape=job_answers.Job)

    def queue(self) -> dict[str, int]:
        """Jobs that are kept, by state."""
        return dict(self._get("v1/queue", shape=job_answers.QueueCounts)["tasks"])

    def history(self, limit: int = 50) -> list[Json]:
        """Jobs that have ended, the latest end first; at most 500."""
        return self._get_list("v1/queue/history", "tasks", job_answers.Tasks, limit=limit)

    def follow(
        self, job_id: str, step: float = LONG_POLL_SECONDS, timeout: float | None = None, first: float | None = None
    ) -> Iterator[Json]:
        """The job at most `step` seconds apart until it has ended; the last one is in its terminal state.

        `first`: seconds until the first one at most, where that is not `step`.
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
                shape=job_answers.Job,
            )
            yield job
            if job["state"] in TERMINAL:
                return
            if left <= 0:
                raise TimedOut(f"job {job_id} is {job['state']} after {timeout:g} seconds; it goes on")
            time.sleep(max(0.0, min(left, began + _LEAST_STEP - time.monotonic())))

    def wait(self, job_id: str, timeout: float | None = None) -> Json:
        """The job when it has ended, well or not; TimedOut when it has not after `timeout` seconds."""
        *_, job = self.follow(job_id, timeout=timeout)
        return job

    def result(self, job_id: str, *, wait_seconds: float = 0.0, partial: bool = False) -> Json:
        """`{job_id, type, partial, units, total, result}`; ApiError with status 409 before the end.

        `partial` gives what is there so far, marked, with the units it covers.
        """
        return self._get(
            f"jobs/{quoted(job_id)}/result",
            wait_seconds=wait_seconds,
            partial="true" if partial else None,
            shape=job_answers.Result,
        )

    def events(self, job_id: str) -> Iterator[Json]:
        """Events of a job from its present state to its terminal one; broken connections are resumed."""
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
        raise httpx.RemoteProtocolError("the stream ended before the job")

    def jobs(self, *, state: str | None = None, kind: str | None = None, limit: int | None = None) -> Iterator[Json]:
        """Jobs, newest first, page by page as they are read."""

        def ask(cursor: str | None, size: int) -> Json:
            return self._get("jobs", state=state, type=kind, cursor=cursor, limit=size, shape=job_answers.Jobs)

        return pages(self.url, ask, "jobs", limit)

    def cancel(self, job_id: str) -> Json:
        return self._post(f"jobs/{quoted(job_id)}/cancel", shape=job_answers.Job)

    def pause(self, job_id: str) -> Json:
        return self._post(f"jobs/{quoted(job_id)}/pause", shape=job_answers.Job)

    def resume(self, job_id: str, hold: bool = False) -> Json:
        """A paused job goes on. `hold`: where a cap of its tenant refuses it, it is queued until there is room."""
        return self._post(f"jobs/{quoted(job_id)}/resume", shape=job_answers.Job, hold=hold)

    def retry(self, job_id: str, hold: bool = False) -> Json:
        """A failed or cancelled job goes on where it stopped, and what was skipped because of it waits for it again.

        `hold`: as in `resume`.
        """
        return self._post(f"jobs/{quoted(job_id)}/retry", shape=job_answers.Job, hold=hold)

    def relations(self, job_id: str) -> Json:
        """Jobs that it comes after (`parents`), that wait for it (`children`), and that were skipped because of it."""
        return self._get(f"jobs/{quoted(job_id)}/relations", shape=job_answers.Relations)

    def dead(self, job_id: str | None = None) -> list[Json]:
        """Jobs with units that were given up, and each such range with its error; of one job, or of all."""
        path = "dead" if job_id is None else f"jobs/{quoted(job_id)}/dead"
        return self._get_list(path, "jobs", job_answers.DeadJobs)

    def retry_dead(self, job_id: str, first: int, hold: bool = False) -> Json:
        """One range that was given up, the one that begins at `first`, is tried again; the others stay."""
        return self._post(f"jobs/{quoted(job_id)}/dead/{first}/retry", shape=job_answers.Job, hold=hold)

    def delete(self, job_id: str) -> None:
        """Forgets a job that has ended, with its result, or one that is blocked. Not while others wait for it."""
        self._ask("DELETE", f"/api/jobs/{quoted(job_id)}", shape=None)

    def status(self) -> Json:
        return self._get("status", shape=fleet_answers.Status)

    def version(self) -> str:
        """Return the version of the cluster."""
        return str(self._get("status", shape=answers.Version)["version"])

    def metrics(self) -> list[Json]:
        """`{name, type, help, samples}` of each metric under the names of grid-cli."""
        return self._get_list("metrics", "metrics", telemetry_answers.Metrics)

    def tenants(self) -> list[Json]:
        """Return the tenants that one sees, with their weights, caps and use."""
        return self._get_list("tenants", "tenants", tenant_answers.Tenants)

    def tenant(self, name: str) -> Json:
        """Return one tenant."""
        return self._get(f"tenants/{quoted(name)}", shape=tenant_answers.Tenant)

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
        """Register a tenant, or change its weight and caps; None: no cap. `max_units`: a day, by kind.

        `requires`: labels that hosts need to compute its jobs; none: any host may; None: as it was.
        """
        body: Json = {"weight": weight, "max_lanes": max_lanes, "max_jobs": max_jobs}
        daily = {"max_units": max_units, "max_gpu_seconds": max_gpu_seconds, "max_stored_bytes": max_stored_bytes}
        body |= {cap: most for cap, most in daily.items() if most}  # which a coordinator of 0.1 does not know
        body |= {} if requires is None else {"requires": list(requires)}
        return self._ask("PUT", f"/api/tenants/{quoted(name)}", body=body, shape=tenant_answers.Tenant)

    def delete_tenant(self, name: str) -> None:
        """Forget a tenant none of whose jobs waits or runs."""
        self._ask("DELETE", f"/api/tenants/{quoted(name)}", shape=None)

    def workers(self) -> list[Json]:
        """Return the workers that live, and those lost within the hour."""
        return self._get_list("workers", "workers", fleet_answers.WorkerList)

    def hosts(self) -> list[Json]:
        """Return the machines on which workers live, and those that were lost within the hour."""
        return self._get_list("hosts", "hosts", host_answers.HostList)

    def host(self, name: str) -> Json:
        """Return one machine with the rows of its workers."""
        return self._get(f"hosts/{quoted(name)}", shape=host_answers.HostDetail)

    def best_host(self, config: str | Path | None = None) -> str:
        """Return the name of the host with the least score among those of cluster.yaml and of the cluster.

        `config`: another file than ./cluster.yaml, which need not be there. ClientError where no host is reached.
        """
        from threads_cluster.ssh import hosts

        return hosts.best(self.hosts, None if config is None else Path(config))

    def stream(self, seconds: int = 600) -> Json:
        """`{from, to, lanes, spans, ...}`: which lane computed which job when, at most of the last hour.

        Over 20,000 spans are joined, within `resolution_seconds`.
        """
        stream = self._get("stream", shape=telemetry_answers.Spans, seconds=seconds, spans=20_000)
        if any(span["lane"] >= len(stream["lanes"]) for span in stream["spans"]):
            raise UnexpectedAnswer(self.url, "a span is of a lane that is not listed")
        if any(span["units"] is None and span["job_id"] is not None for span in stream["spans"]):
            raise UnexpectedAnswer(self.url, "a span of a job has no units")
        return stream

    def drain(self, worker: str, on: bool = True) -> Json:
        """Let a worker finish what it holds and take nothing new; `on=False` lets it work again."""
        return self._post(f"workers/{quoted(worker)}/drain", {"on": on}, shape=fleet_answers.Drained)

    def usage(self, tenant: str | None = None, days: int = 30) -> list[Json]:
        """Return usage by tenant and day, newest first: with scope admin that of all tenants, else one's own."""
        return self._get_list("usage", "usage", usage_answers.TenantUsages, tenant=tenant, days=days)

    def audit(self, after: int | None = None, limit: int = 100) -> Json:
        """`{lines, head, dropped, exported}`: entries of the audit log after a number, else the last ones.

        Each line is the text of a JSON object, which `threads_cluster.cli.audit` verifies.
        """
        return self._get("audit", after=after, limit=limit, shape=audit_answers.AuditPart)

    def ask(self, job_id: str, question: str, **choice: Any) -> Json:
        """Ask a worker something about a job, such as `trace` of a thread job; return its answer when it is there."""
        answer = self._get(f"jobs/{quoted(job_id)}/{quoted(question)}.json", **choice)
        if answer.keys() != {"job_id", "status"}:
            return answer
        answers.checked(job_answers.Asked, answer, self.url)
        job = self.wait(answer["job_id"])
        if job["state"] != "done":
            raise JobEnded(job["job_id"], job["state"], job.get("error"))
        later: Json = self.result(answer["job_id"])["result"]
        return later

    def mark(self, kind: str, name: str) -> Json:
        """`{up_to, ranges, ...}`: what finished jobs of a kind proved together, such as collatz verified."""
        return self._get(f"kinds/{quoted(kind)}/marks/{quoted(name)}", shape=job_answers.Mark)

    def kinds(self) -> list[Json]:
        """`{type, summary, schema, example, limits}` of each kind of job."""
        return self._get_list("job-types", "kinds", job_answers.Kinds)

    # -- who is let in ----------------------------------------------------------------------------------------------

    def session(self) -> Json:
        """Who asks: `{tenant, token_id, token_name, scopes, by_cookie, token_needed}`."""
        return self._ask("GET", "/api/session", access_answers.Session)

    def tokens(self) -> list[Json]:
        """API tokens, without their secrets; needs the scope admin."""
        return self._get_list("tokens", "tokens", access_answers.TokenList)

    def create_token(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        tenant: str = "default",
        ttl_seconds: int | None = None,
        labels: Sequence[str] = (),
    ) -> Json:
        """`{token, id, name, tenant, scopes, expires, labels}`; the token is in this answer and nowhere else.

        `labels`: of the host of a worker, or of an invitation's host; tenants may require them.
        """
        body: Json = {"name": name, "scopes": list(scopes), "tenant": tenant, "ttl_seconds": ttl_seconds}
        body |= {"labels": list(labels)} if labels else {}
        # A second attempt would make a second token.
        return self._ask("POST", "/api/tokens", access_answers.CreatedToken, body=body, patience=0)

    def revoke_token(self, token_id: str) -> None:
        """End a token; needs the scope admin."""
        self._ask("DELETE", f"/api/tokens/{quoted(token_id)}", None)

    def secrets(self, tenant: str | None = None) -> list[Json]:
        """Secrets of one's tenant, without their values; needs the scope run, for another tenant admin."""
        return self._get_list("secrets", "secrets", secret_answers.SecretList, tenant=tenant)

    def put_secret(self, name: str, value: str, *, tenant: str | None = None) -> Json:
        """Set a secret; returns it without its value, which the cluster never shows again."""
        body = {"value": value}
        return self._ask("PUT", f"/api/secrets/{quoted(name)}", secret_answers.Secret, body=body, tenant=tenant)

    def delete_secret(self, name: str, *, tenant: str | None = None) -> None:
        """Delete a secret."""
        self._ask("DELETE", f"/api/secrets/{quoted(name)}", None, tenant=tenant)

    def schedules(self, *, tenant: str | None = None) -> list[Json]:
        """Schedules of one's tenant, by name."""
        return self._get_list("schedules", "schedules", schedule_answers.ScheduleList, tenant=tenant)

    def schedule(self, name: str, *, tenant: str | None = None) -> Json:
        """One schedule, with its job and its `next_runs`."""
        return self._get(f"schedules/{quoted(name)}", shape=schedule_answers.Schedule, tenant=tenant)

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
        """Have a job submitted again and again, `job` as for `submit_batch`, or a workflow, its text.

        Returns the schedule with its `next_runs`.
        """
        if (job is None) == (workflow is None):
            raise BadArgument("a schedule needs a job or a workflow, one of both")
        what: Json = {"workflow": workflow} if job is None else {"job": wire(dict(job))}
        given = {"every_seconds": every_seconds, "cron": cron, "timezone": timezone, "catch_up": catch_up}
        chosen = {field: value for field, value in given.items() if value is not None}
        body = {"name": name, "overlap": overlap, **what, **chosen}
        # A second attempt would find the schedule of the first.
        return self._ask("POST", "/api/schedules", schedule_answers.Schedule, body=body, patience=0)

    def pause_schedule(self, name: str, *, tenant: str | None = None) -> Json:
        """Let it run no more until it is resumed."""
        return self._ask("POST", f"/api/schedules/{quoted(name)}/pause", schedule_answers.Schedule, tenant=tenant)

    def resume_schedule(self, name: str, *, tenant: str | None = None) -> Json:
        """Let a paused one run again."""
        return self._ask("POST", f"/api/schedules/{quoted(name)}/resume", schedule_answers.Schedule, tenant=tenant)

    def run_schedule(self, name: str, *, tenant: str | None = None) -> str:
        """Submit its job or workflow now, beside its times; the id of that."""
        # A second attempt would submit a second one.
        path = f"/api/schedules/{quoted(name)}/run"
        started = self._ask("POST", path, schedule_answers.Started, patience=0, tenant=tenant)
        return str(started["job_id"] or started.get("workflow_id"))

    def delete_schedule(self, name: str, *, tenant: str | None = None) -> None:
        """Delete a schedule; what it has submitted goes on."""
        self._ask("DELETE", f"/api/schedules/{quoted(name)}", None, tenant=tenant)

    def webhooks(self, state: str | None = None, limit: int = 100, *, tenant: str | None = None) -> Json:
        """`{deliveries, counts}`: deliveries of webhooks, the latest first, of all states or one."""
        return self._get("webhooks", shape=webhook_answers.DeliveryList, state=state, limit=limit, tenant=tenant)

    def retry_webhook(self, delivery_id: str, *, tenant: str | None = None) -> Json:
        """Try a delivery at once, one that was given up anew; returns it."""
        path = f"/api/webhooks/{quoted(delivery_id)}/retry"
        return self._ask("POST", path, webhook_answers.Delivery, tenant=tenant)

    def webhook_key(self, *, tenant: str | None = None) -> str:
        """The key with which webhooks are signed, as receivers take it; needs the scope submit, and is audited."""
        return str(self._get("webhooks/key", shape=webhook_answers.SigningKey, tenant=tenant)["key"])

    def test_webhook(self, url: str) -> Json:
        """`{delivered, status, error, seconds}` of a message of the type webhook.test, sent to a URL once."""
        return self._ask("POST", "/api/webhooks/test", webhook_answers.Tried, body={"url": url}, extra_seconds=20.0)

    def rotate_secrets(self) -> Json:
        """`{key, rotated, unreadable}`: encrypts all secrets with the first of SECRETS_KEY; needs the scope admin."""
        return self._ask("POST", "/api/rotate-secrets", secret_answers.Rotated)

    def login_code(self) -> Json:
        """`{code, path, seconds}`: logs a browser in once, as this token."""
        return self._ask("POST", "/api/login-codes", access_answers.LoginCode, patience=0)

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
        """The answer, once it is as the shape says; None: any will do."""
        answer: Json = self.connection.ask(method, path, shape, **({"patience": self.patience} | how))
        return answer

    def _one_each(self, wanted: int, answer: Json) -> list[Json]:
        several: list[Json] = answer["answers"]
        if len(several) != wanted:
            raise UnexpectedAnswer(self.url, f"{len(several)} answers to {wanted} questions")
        return several


def environment() -> settings.Settings:
    """The settings. Misconfigured names the variable; its value stays unsaid."""
    try:
        return settings.load()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"])).upper()
        raise Misconfigured(f"the variable {name} cannot be used: {first['msg']}") from None


def submission(kind: str, parameters: Mapping[str, Any] | None, *, idempotency_key: str | None, **choices: Any) -> Json:
    """The body of a submit: integers as they travel, nothing that was not chosen, always a key."""
    if idempotency_key == "":
        raise BadArgument("must not be empty", "idempotency_key")
    choices |= {name: _ids(choices[name], name) for name in ("after", "after_any") if choices.get(name) is not None}
    options = {name: value for name, value in choices.items() if value is not None}
    key = idempotency_key or uuid.uuid4().hex
    return {"type": kind, "parameters": wire(dict(parameters or {})), "idempotency_key": key} | options


def _ids(several: Any, name: str) -> list[str] | None:
    """The ids of jobs as a list; None for none. BadArgument for one text, whose letters are no jobs."""
    if isinstance(several, str):
        raise BadArgument("must be a list of ids of jobs", name)
    return list(several) or None


def wire(value: Any) -> Any:
    """The value as JSON keeps it exactly: integers beyond 2^53 as decimal strings, at any depth.

    BadArgument when it is nested too deeply, or an integer in it has more than 100,000 digits.
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
