"""Answers about services, for the API's description and the tests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from coordinator.schemas import Answer, optional, required


class ServiceReplica(Answer):
    job_id: str = required("Its job, which has its log.")
    state: str = required("waiting, starting, ready, unhealthy, stopping or dead.")
    because: str | None = required("Why it is not ready, or why the coordinator that answers does not reach it.")
    worker: str | None = required("The runner that runs it.")
    host: str | None
    generation: int = required("Number of the restart that it is of.")
    since: str = required("When it was begun.")
    requests: int = required("Requests that it has now, of all coordinators.")
    devices: list[str] | None = required("What it computes on: cpu, or GPUs by name and UUID; null: not known.")
    memory_bytes: int | None = required("Memory of its processes on the host; null: not known.")


class LastMinute(Answer):
    seconds: float = required("Time that these are of, 60 to 70 s; less while the service is younger.")
    requests: int = required("Requests that ended, at all coordinators.")
    failed: int = required("Those of them that ended with 429 or 5xx.")
    prompt_tokens: int
    answer_tokens: int = required("Tokens of answers that ended, as the engine counts them.")
    requests_per_second: float
    answer_tokens_per_second: float
    median_seconds: float | None = required("From the arrival of a request to its last byte; right to 5 %.")
    median_first_token_seconds: float | None = required("To the first frame of a stream; right to 5 %.")
    median_stream_tokens_per_second: float | None = required("Of a stream, after its first token; right to 5 %.")


class Service(Answer):
    name: str
    tenant: str
    engine: str
    model: str | None = required("What its artifact was named when it was served.")
    state: str = required("stopped, stopping, asleep, else the best state of its replicas; waiting: none yet.")
    replicas: int = required("Replicas that are wanted.")
    ready: int = required("Replicas that are ready.")
    requests: int = required("Requests that there are now, those that wait included.")
    created: str
    failures: int = required("Deaths of replicas in a row; ten minutes of one that is ready end the row.")
    next_start: str | None = required("Before when no replica begins, where some died.")
    last_failure: str | None = required("Why the last replica died.")
    running: list[ServiceReplica] = required("Its replicas.")
    last_minute: LastMinute = required("What it did lately.")
    page: bool = required("It has a page for browsers: POST /api/services/NAME/open.")
    asked: dict[str, Any] | None = optional("What was asked for; of one service alone.")
    last_dead_job_id: str | None = optional("The job of the last replica that died, for its log.")


class Engine(Answer):
    engine: str
    summary: str
    routes: str = required("openai: it is asked at /v1; http: in its own way.")
    large: bool = required("Its packages are gigabytes.")
    packages: str = required("Those that a runner needs for it, as a file of requirements lists them; empty: none.")
    parameters: dict[str, Any] = required("JSON Schema of its parameters.")


class EngineList(Answer):
    engines: list[Engine] = required("By name.")


class Access(Answer):
    job_id: str = required("The replica that leads.")
    address: str = required("Where it answers.")
    port: int
    certificate: str = required("PEM: of both sides, and of who signed it. Whoever has it and its key is let in.")
    private_key: str = required("PEM.")


class PageLink(Answer):
    url: str = required("Where a browser looks at it: under a host of the service's own.")
    seconds: int | None = required("For which the link can be followed; null: no token is needed, nor a link.")


class ServiceList(Answer):
    services: list[Service] = required("By name.")


class Placed(Answer):
    service_id: str = required("The name of the service.")
    status: str = required("Its state.")


class PlacedStatus(Placed):
    replicas: int = required("Replicas that are ready.")
    url: str = required("Where OpenAI's API answers for it, with service_id as the model.")


class Deployed(Answer):
    deployment_id: str = required("The name of the service.")
    status: str = required("Its state.")


class InferredText(Answer):
    text: str
    usage: dict[str, Any] = required("Tokens, as the engine counts them.")
    deployment_id: str


class Inference(BaseModel):
    """A request in the form of OpenAI's API or Anthropic's. Other fields go to the engine unchanged."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1, description="A model that GET /v1/models lists: the name of a service.")
    stream: bool = Field(False, description="Answer as server-sent events.")


class Inferred(BaseModel):
    """An answer as the engine gave it; with `stream`, server-sent events of such objects."""

    model_config = ConfigDict(extra="allow")

    object: str
    model: str


class Ranked(BaseModel):
    """Documents ranked by how well they fit, as the engine returned them."""

    model_config = ConfigDict(extra="allow")

    model: str
    results: list[dict[str, Any]] = Field(description="Each has `index` and `relevance_score`.")


class Message(BaseModel):
    """An answer as the engine returned it; with `stream`, server-sent events."""

    model_config = ConfigDict(extra="allow")

    type: str
    model: str


class CountedTokens(BaseModel):
    model_config = ConfigDict(extra="allow")

    input_tokens: int = Field(description="Tokens of the prompt, as the engine counts them.")


class ServedModel(Answer):
    id: str = required("Its name, by which it is asked for.")
    object: str
    created: int
    owned_by: str = required("The tenant.")
    ready: int = required("Replicas that are ready, and that this coordinator reaches.")
    context_length: int | None = required("Most tokens of prompt and answer together in one request; null: not known.")
    max_model_len: int | None = required("The same as context_length, under the name that vLLM uses.")
    capabilities: list[str] | None = required("completion, embedding or rerank; null: not known.")


class ModelList(Answer):
    object: str
    data: list[ServedModel]
