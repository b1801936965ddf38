"""Services from Python: `Cluster().services`.

cluster.services.serve("chat", "llamacpp", model="tiny", parameters={"context": 2048})
cluster.services.wait("chat")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from threads_cluster.client.resource import Json, Resource, Rows, polled, quoted
from threads_cluster.errors import ClientError
from threads_protocol.answers import services as service_answers

#: Deaths in a row after which nobody waits any longer.
_DEATHS = 3


class Died(ClientError):
    """Replicas of a service die again and again."""

    exit_code = 1


class Services(Resource):
    """Services of one connection."""

    path = "/api/services"

    def serve(
        self,
        name: str,
        engine: str = "",
        *,
        model: str | None = None,
        replicas: int | None = None,
        parameters: Mapping[str, Any] | None = None,
        requirements: Mapping[str, Any] | None = None,
        **choices: Any,
    ) -> Json:
        """Keep replicas of an engine up, and return the service. `model`: an artifact by id or name.

        Without an engine: one for the model's files. `choices`: `force` (also where the weights are more than any
        runner's memory), `max_concurrent_requests`, `request_timeout_seconds`, `start_timeout_seconds`, `idle_seconds`,
        `autoscale` (`min`, `max`, `target`), `priority`.
        """
        body: Json = {"name": name, **({"engine": engine} if engine else {}), "parameters": dict(parameters or {})}
        body |= {"requirements": dict(requirements or {})}
        choices |= {"model": model, "replicas": replicas}
        body |= {field: value for field, value in choices.items() if value is not None}
        # A second attempt would find the name taken.
        return self._ask("POST", "", service_answers.Service, body=body, patience=0)

    def list(self, *, tenant: str | None = None) -> list[Json]:
        """Services by name, each with its replicas under `running`."""
        return self._read_list("services", service_answers.ServiceList, tenant=tenant)

    def get(self, name: str, *, tenant: str | None = None) -> Json:
        """One service, with what was asked for."""
        return self._ask("GET", f"/{_quoted(name)}", service_answers.Service, tenant=tenant)

    def scale(self, name: str, replicas: int, *, tenant: str | None = None) -> Json:
        """Keep another number of replicas; starts a service that was stopped."""
        path = f"/{_quoted(name)}/scale"
        return self._ask("POST", path, service_answers.Service, body={"replicas": replicas}, tenant=tenant)

    def restart(self, name: str, *, tenant: str | None = None) -> Json:
        """Replace all replicas, one after the other."""
        return self._ask("POST", f"/{_quoted(name)}/restart", service_answers.Service, tenant=tenant, patience=0)

    def stop(self, name: str, *, tenant: str | None = None) -> Json:
        """End all replicas until it is scaled or restarted."""
        return self._ask("POST", f"/{_quoted(name)}/stop", service_answers.Service, tenant=tenant)

    def delete(self, name: str, *, tenant: str | None = None) -> None:
        """Delete a service; its replicas end when their requests are answered."""
        self._ask("DELETE", f"/{_quoted(name)}", None, tenant=tenant)

    def engines(self) -> Rows:
        """Engines by name: `engine`, `summary`, `routes`, `large`, `packages`, `parameters` (a JSON Schema)."""
        answer = self._connection.ask(
            "GET", "/api/engines", service_answers.EngineList, patience=self._cluster.patience
        )
        rows: Rows = answer["engines"]
        return rows

    def access(self, name: str, *, tenant: str | None = None) -> Json:
        """`{job_id, address, port, certificate, private_key}` of the replica that leads; of Dask alone."""
        return self._ask("POST", f"/{_quoted(name)}/access", service_answers.Access, tenant=tenant)

    def open(self, name: str, *, tenant: str | None = None) -> Json:
        """`{url, seconds}`: a link to a service's page for browsers, such as Dask's dashboard."""
        return self._ask("POST", f"/{_quoted(name)}/open", service_answers.PageLink, tenant=tenant)

    def deploy(self, model_name: str, **how: Any) -> Json:
        """`{deployment_id, status}`: serve a model under the words of POST /api/llm/models/deploy."""
        body = {"model_name": model_name, **how}
        path = "/api/llm/models/deploy"
        answer: Json = self._connection.ask("POST", path, service_answers.Deployed, body=body, patience=0)
        return answer

    def infer(self, deployment_id: str, prompt: str, *, timeout: float = 300.0, **how: Any) -> Json:
        """`{text, usage, deployment_id}`: have a model continue a text.

        `how`: `max_tokens`, `temperature`, `stop_sequences`.
        """
        path = f"/api/llm/models/{_quoted(deployment_id)}/inference"
        body = {"prompt": prompt, **how}
        answer: Json = self._connection.ask(
            "POST", path, service_answers.InferredText, body=body, patience=0, extra_seconds=timeout
        )
        return answer

    def follow(self, name: str, timeout: float | None = None) -> Iterator[Json]:
        """The service again and again, until as many replicas are ready as are wanted.

        TimedOut after `timeout` seconds; Died when three replicas died one after the other.
        """

        def read() -> Json:
            return self._ask("GET", f"/{_quoted(name)}", service_answers.Service, patience=self._cluster.wait_patience)

        def is_done(row: Json) -> bool:
            if row["ready"] >= row["replicas"] and row["running"]:
                return True
            if row["failures"] >= _DEATHS and not row["ready"]:
                error = Died(f"{row['failures']} replicas of {name} died, the last: {row['last_failure']}")
                error.next = f"cluster service logs {name}; it goes on trying until: cluster service stop {name}"
                raise error
            return False

        return polled(read, is_done, f"service {name}", timeout)

    def wait(self, name: str, timeout: float | None = None) -> Json:
        """The service once as many replicas are ready as are wanted. Errors as `follow`."""
        *_, row = self.follow(name, timeout)
        return row


def _quoted(name: str) -> str:
    return quoted(name, "name of a service")
