"""Types of responses about services."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class ServiceReplica(Answer):
    job_id: Annotated[str, describe("Job of the replica, which has its log.")]
    state: Annotated[str, describe("waiting, starting, ready, unhealthy, stopping or dead.")]
    because: Annotated[
        str | None, describe("Why the replica is not ready, or why the responding coordinator cannot reach it.")
    ]
    worker: Annotated[str | None, describe("Runner of the replica.")]
    host: str | None
    generation: Annotated[Count, describe("Number of the service's restart in which the replica was started.")]
    since: Annotated[Moment, describe("Time when the replica was started.")]
    requests: Annotated[Count, describe("Open requests of the replica, over all coordinators.")]
    devices: Annotated[
        Many[str] | None, describe("Devices of the replica: cpu, or GPUs by name and UUID; null: unknown.")
    ]
    memory_bytes: Annotated[Count | None, describe("Host memory of the replica's processes in bytes; null: unknown.")]


class LastMinute(Answer):
    seconds: Annotated[float, describe("Length of the measured period, 60 to 70 s; shorter for a younger service.")]
    requests: Annotated[Count, describe("Finished requests, over all coordinators.")]
    failed: Annotated[Count, describe("Finished requests with status 429 or 5xx.")]
    prompt_tokens: Count
    answer_tokens: Annotated[Count, describe("Response tokens of finished requests, as counted by the engine.")]
    requests_per_second: float
    answer_tokens_per_second: float
    median_seconds: Annotated[
        float | None, describe("Median seconds from the arrival of a request to its last byte, accurate to 5 %.")
    ]
    median_first_token_seconds: Annotated[
        float | None, describe("Median seconds to the first event of a stream, accurate to 5 %.")
    ]
    median_stream_tokens_per_second: Annotated[
        float | None, describe("Median tokens per second of a stream after its first token, accurate to 5 %.")
    ]


class Service(Answer):
    name: str
    tenant: str
    engine: str
    model: Annotated[str | None, describe("Name of the model's artifact when the service was created.")]
    state: Annotated[
        str,
        describe("stopped, stopping, asleep, waiting if there are no replicas, else the best state of its replicas."),
    ]
    replicas: Annotated[Count, describe("Desired number of replicas.")]
    ready: Annotated[Count, describe("Number of ready replicas.")]
    requests: Annotated[Count, describe("Open requests, including waiting requests.")]
    created: Moment
    failures: Annotated[
        Count, describe("Consecutive deaths of replicas. Reset when a replica has been ready for ten minutes.")
    ]
    next_start: Annotated[Moment | None, describe("Time before which no replica starts, after replicas died.")]
    last_failure: Annotated[str | None, describe("Why the last replica died.")]
    running: Annotated[Many[ServiceReplica], describe("Replicas of the service.")]
    last_minute: Annotated[LastMinute, describe("Statistics of the last minute.")]
    page: Annotated[bool, describe("True if the service has a web page: POST /api/services/NAME/open.")]
    asked: NotRequired[
        Annotated[dict[str, Any], describe("Configuration that was submitted; only for a single service.")]
    ]
    last_dead_job_id: NotRequired[
        Annotated[str | None, describe("Job of the last replica that died, which has its log.")]
    ]


class Estimate(Answer):
    engine: Annotated[str, describe("Engine that would serve the model.")]
    memory: Annotated[str | None, describe("Memory of a replica, and of the largest suitable runner; null: unknown.")]
    fits: Annotated[bool | None, describe("True if the memory of a live runner is enough; null: unknown.")]


class Engine(Answer):
    engine: str
    summary: str
    routes: Annotated[str, describe("openai: requests go to /v1. http: requests are forwarded unchanged.")]
    large: Annotated[bool, describe("True if the engine's packages are gigabytes.")]
    packages: Annotated[
        str, describe("Packages that a runner needs for the engine, in the format of requirements.txt; empty: none.")
    ]
    parameters: Annotated[dict[str, Any], describe("JSON Schema of the engine's parameters.")]


class EngineList(Answer):
    engines: Annotated[Many[Engine], describe("Engines, sorted by name.")]


class Access(Answer):
    job_id: Annotated[str, describe("Job of the leading replica.")]
    address: Annotated[str, describe("Address of the replica.")]
    port: Count
    certificate: Annotated[
        str, describe("Certificates of both sides and of their issuer, in PEM. With the key, they grant access.")
    ]
    private_key: Annotated[str, describe("Private key in PEM.")]


class PageLink(Answer):
    url: Annotated[str, describe("URL of the service's page, under its own host name.")]
    seconds: Annotated[Count | None, describe("Lifetime of the link in seconds; null if no token is required.")]


class ServiceList(Answer):
    services: Annotated[Many[Service], describe("Services, sorted by name.")]


class Placed(Answer):
    service_id: Annotated[str, describe("Name of the service.")]
    status: Annotated[str, describe("State of the service.")]
    note: NotRequired[Annotated[str, describe("Why a port in the request has no effect.")]]


class PlacedStatus(Placed):
    replicas: Annotated[Count, describe("Number of ready replicas.")]
    url: Annotated[str, describe("Base URL of OpenAI's API, with service_id as the model.")]


class Deployed(Answer):
    deployment_id: Annotated[str, describe("Name of the service.")]
    status: Annotated[str, describe("State of the service.")]


class InferredText(Answer):
    text: str
    usage: Annotated[dict[str, Any], describe("Token counts, as reported by the engine.")]
    deployment_id: str


class ServedModel(Answer):
    id: Annotated[str, describe("Name of the model in requests.")]
    object: str
    created: Count
    owned_by: Annotated[str, describe("Tenant that owns the service.")]
    ready: Annotated[Count, describe("Number of ready replicas that the responding coordinator can reach.")]
    context_length: Annotated[Count | None, describe("Maximum tokens of prompt and response together; null: unknown.")]
    max_model_len: Annotated[Count | None, describe("Same as context_length, under vLLM's name.")]
    capabilities: Annotated[Many[str] | None, describe("completion, embedding or rerank; null: unknown.")]


class ModelList(Answer):
    object: str
    data: Many[ServedModel]
