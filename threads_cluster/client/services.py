"""Services of the cluster, as provided by `Cluster().services`.

cluster.services.serve("chat", "llamacpp", model="tiny", parameters={"context": 2048})
cluster.services.wait("chat")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from threads_cluster.client.resource import Json, Resource, Rows, polled, quoted
from threads_cluster.errors import ClientError
from threads_protocol.answers import services as service_answers

#: Number of consecutive replica failures after which `wait` gives up.
_DEATHS = 3


class Died(ClientError):
    """Replicas of a service fail repeatedly."""

    exit_code = 1


class Services(Resource):
    """Services that a connection can access."""

    path = "/api/services"

    def serve(
        self,
        /,
        name: str,
        engine: str = "",
        *,
        model: str | None = None,
        replicas: int | None = None,
        parameters: Mapping[str, Any] | None = None,
        requirements: Mapping[str, Any] | None = None,
        **choices: Any,
    ) -> Json:
        """Create the service `name`, which keeps replicas of an engine running. Return the service.

        `model` is an artifact's ID or name. The default engine depends on the model's files. `parameters` are those of
        the engine, and `requirements` are the GPUs, CPUs and memory of a replica. `choices`: `force` (allow weights
        that are larger than each runner's memory), `max_concurrent_requests`, `request_timeout_seconds`,
        `start_timeout_seconds`, `idle_seconds`, `autoscale` (`min`, `max`, `target`), `priority`.

        Example:
            cluster.services.serve("chat", model="qwen", replicas=2)
            cluster.services.wait("chat", timeout=600)
        """
        body: Json = {"name": name, **({"engine": engine} if engine else {}), "parameters": dict(parameters or {})}
        body |= {"requirements": dict(requirements or {})}
        choices |= {"model": model, "replicas": replicas}
        body |= {field: value for field, value in choices.items() if value is not None}
        # A retry would fail if the first attempt had created the service.
        return self._ask("POST", "", service_answers.Service, body=body, patience=0)

    def list(self, *, tenant: str | None = None) -> list[Json]:
        """Return all services sorted by name. The field `running` contains the replicas of a service.

        Example:
            for service in cluster.services.list(tenant="team-a"):
                print(service["name"], service["ready"])
        """
        return self._read_list("services", service_answers.ServiceList, tenant=tenant)

    def get(self, name: str, *, tenant: str | None = None) -> Json:
        """Return the service `name` with its specification.

        Example:
            print(cluster.services.get("chat", tenant="team-a")["state"])
        """
        return self._ask("GET", f"/{_quoted(name)}", service_answers.Service, tenant=tenant)

    def scale(self, name: str, replicas: int, *, tenant: str | None = None) -> Json:
        """Change the number of replicas of the service `name`. A stopped service starts again.

        Example:
            cluster.services.scale("chat", replicas=2, tenant="team-a")
        """
        path = f"/{_quoted(name)}/scale"
        return self._ask("POST", path, service_answers.Service, body={"replicas": replicas}, tenant=tenant)

    def restart(self, name: str, *, tenant: str | None = None) -> Json:
        """Replace all replicas of the service `name`, one after the other.

        Example:
            cluster.services.restart("chat", tenant="team-a")
        """
        return self._ask("POST", f"/{_quoted(name)}/restart", service_answers.Service, tenant=tenant, patience=0)

    def stop(self, name: str, *, tenant: str | None = None) -> Json:
        """Stop all replicas of the service `name` until it is scaled or restarted.

        Example:
            cluster.services.stop("chat", tenant="team-a")
        """
        return self._ask("POST", f"/{_quoted(name)}/stop", service_answers.Service, tenant=tenant)

    def delete(self, name: str, *, tenant: str | None = None) -> None:
        """Delete the service `name`. Its replicas stop after they have answered their requests.

        Example:
            cluster.services.delete("chat", tenant="team-a")
        """
        self._ask("DELETE", f"/{_quoted(name)}", None, tenant=tenant)

    def engines(self) -> Rows:
        """Return the engines with `engine`, `summary`, `routes`, `large`, `packages` and `parameters` (a JSON Schema).

        Example:
            for engine in cluster.services.engines():
                print(engine["engine"], engine["summary"])
        """
        answer = self._connection.ask(
            "GET", "/api/engines", service_answers.EngineList, patience=self._cluster.patience
        )
        rows: Rows = answer["engines"]
        return rows

    def access(self, name: str, *, tenant: str | None = None) -> Json:
        """Return the address and keys of the leading replica of the service `name`. Only Dask services have one.

        The response contains `{job_id, address, port, certificate, private_key}`.

        Example:
            print(cluster.services.access("dask", tenant="team-a")["address"])
        """
        return self._ask("POST", f"/{_quoted(name)}/access", service_answers.Access, tenant=tenant)

    def open(self, name: str, *, tenant: str | None = None) -> Json:
        """Return a browser link to the page of the service `name`, such as Dask's dashboard, as `{url, seconds}`.

        Example:
            print(cluster.services.open("dask", tenant="team-a")["url"])
        """
        return self._ask("POST", f"/{_quoted(name)}/open", service_answers.PageLink, tenant=tenant)

    def deploy(self, /, model_name: str, *, download: bool = False, **how: Any) -> Json:
        """Serve a model, and return `{deployment_id, status}`.

        `model_name` and `how` are the arguments of `POST /api/llm/models/deploy`. With `download`, a model ORG/REPO or
        ORG/REPO/FILE of Hugging Face is downloaded first if the cluster lacks it. The call then waits for the download,
        and raises the errors of `models.fetch`.

        Example:
            print(cluster.services.deploy("Qwen/Qwen3-0.6B-GGUF", download=True)["deployment_id"])
        """
        if download:
            self._cluster.models.fetch(model_name)
        body = {"model_name": model_name, **how}
        path = "/api/llm/models/deploy"
        answer: Json = self._connection.ask("POST", path, service_answers.Deployed, body=body, patience=0)
        return answer

    def infer(self, /, deployment_id: str, prompt: str, *, timeout: float = 300.0, **how: Any) -> Json:
        """Let a model continue the text `prompt`, and return `{text, usage, deployment_id}`.

        `how`: `max_tokens`, `temperature`, `stop_sequences`. Fails if the model does not answer within `timeout`
        seconds.

        Example:
            print(cluster.services.infer("chat", "Once upon a time", max_tokens=32)["text"])
        """
        path = f"/api/llm/models/{_quoted(deployment_id)}/inference"
        body = {"prompt": prompt, **how}
        answer: Json = self._connection.ask(
            "POST", path, service_answers.InferredText, body=body, patience=0, extra_seconds=timeout
        )
        return answer

    def follow(self, name: str, timeout: float | None = None) -> Iterator[Json]:
        """Yield the service `name` repeatedly until the desired number of replicas is ready.

        Raises TimedOut after `timeout` seconds, and Died after three consecutive replica failures.

        Example:
            for service in cluster.services.follow("chat"):
                print(service["ready"], service["replicas"])
        """

        def read() -> Json:
            return self._ask("GET", f"/{_quoted(name)}", service_answers.Service, patience=self._cluster.wait_patience)

        def is_done(row: Json) -> bool:
            if row["ready"] >= row["replicas"] and row["running"]:
                return True
            if row["failures"] >= _DEATHS and not row["ready"]:
                error = Died(f"{row['failures']} replicas of {name} failed; last error: {row['last_failure']}")
                error.next = f"see cluster service logs {name}; stop further attempts with cluster service stop {name}"
                raise error
            return False

        return polled(read, is_done, f"service {name}", timeout)

    def wait(self, name: str, timeout: float | None = None) -> Json:
        """Wait until the desired number of replicas of the service `name` is ready, and return the service.

        Raises TimedOut after `timeout` seconds, and Died after three consecutive replica failures.

        Example:
            cluster.services.wait("chat", timeout=600)
        """
        *_, row = self.follow(name, timeout)
        return row


def _quoted(name: str) -> str:
    return quoted(name, "name of a service")
