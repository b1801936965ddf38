"""Responses about services."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class ServiceReplica(Answer):
    job_id: Annotated[str, describe("Its job, which has its log.")]
    state: Annotated[str, describe("waiting, starting, ready, unhealthy, stopping or dead.")]
    because: Annotated[
        str | None, describe("Why it is not ready, or why the coordinator that answers does not reach it.")
    ]
    worker: Annotated[str | None, describe("The runner that runs it.")]
    host: str | None
    generation: Annotated[Count, describe("Number of the restart that it is of.")]
    since: Annotated[Moment, describe("When it was begun.")]
    requests: Annotated[Count, describe("Requests that it has now, of all coordinators.")]
    devices: Annotated[
        Many[str] | None, describe("What it computes on: cpu, or GPUs by name and UUID; null: not known.")
    ]
    memory_bytes: Annotated[Count | None, describe("Memory of its processes on the host; null: not known.")]


class LastMinute(Answer):
    seconds: Annotated[float, describe("Time that these are of, 60 to 70 s; less while the service is younger.")]
    requests: Annotated[Count, describe("Requests that ended, at all coordinators.")]
    failed: Annotated[Count, describe("Those of them that ended with 429 or 5xx.")]
    prompt_tokens: Count
    answer_tokens: Annotated[Count, describe("Tokens of answers that ended, as the engine counts them.")]
    requests_per_second: float
    answer_tokens_per_second: float
    median_seconds: Annotated[float | None, describe("From the arrival of a request to its last byte; right to 5 %.")]
    median_first_token_seconds: Annotated[float | None, describe("To the first frame of a stream; right to 5 %.")]
    median_stream_tokens_per_second: Annotated[
        float | None, describe("Of a stream, after its first token; right to 5 %.")
    ]


class Service(Answer):
    name: str
    tenant: str
    engine: str
    model: Annotated[str | None, describe("What its artifact was named when it was served.")]
    state: Annotated[
        str, describe("stopped, stopping, asleep, else the best state of its replicas; waiting: none yet.")
    ]
    replicas: Annotated[Count, describe("Replicas that are wanted.")]
    ready: Annotated[Count, describe("Replicas that are ready.")]
    requests: Annotated[Count, describe("Requests that there are now, those that wait included.")]
    created: Moment
    failures: Annotated[Count, describe("Deaths of replicas in a row; ten minutes of one that is ready end the row.")]
    next_start: Annotated[Moment | None, describe("Before when no replica begins, where some died.")]
    last_failure: Annotated[str | None, describe("Why the last replica died.")]
    running: Annotated[Many[ServiceReplica], describe("Its replicas.")]
    last_minute: Annotated[LastMinute, describe("What it did lately.")]
    page: Annotated[bool, describe("It has a page for browsers: POST /api/services/NAME/open.")]
    asked: NotRequired[Annotated[dict[str, Any], describe("What was asked for; of one service alone.")]]
    last_dead_job_id: NotRequired[
        Annotated[str | None, describe("The job of the last replica that died, for its log.")]
    ]


class Engine(Answer):
    engine: str
    summary: str
    routes: Annotated[str, describe("openai: it is asked at /v1; http: in its own way.")]
    large: Annotated[bool, describe("Its packages are gigabytes.")]
    packages: Annotated[
        str, describe("Those that a runner needs for it, as a file of requirements lists them; empty: none.")
    ]
    parameters: Annotated[dict[str, Any], describe("JSON Schema of its parameters.")]


class EngineList(Answer):
    engines: Annotated[Many[Engine], describe("By name.")]


class Access(Answer):
    job_id: Annotated[str, describe("The replica that leads.")]
    address: Annotated[str, describe("Where it answers.")]
    port: Count
    certificate: Annotated[
        str, describe("PEM: the certificate of both sides and its issuer's. The certificate and its key give access.")
    ]
    private_key: Annotated[str, describe("PEM.")]


class PageLink(Answer):
    url: Annotated[str, describe("Where a browser looks at it: under a host of the service's own.")]
    seconds: Annotated[
        Count | None, describe("For which the link can be followed; null: no token is needed, nor a link.")
    ]


class ServiceList(Answer):
    services: Annotated[Many[Service], describe("By name.")]


class Placed(Answer):
    service_id: Annotated[str, describe("The name of the service.")]
    status: Annotated[str, describe("Its state.")]


class PlacedStatus(Placed):
    replicas: Annotated[Count, describe("Replicas that are ready.")]
    url: Annotated[str, describe("Where OpenAI's API answers for it, with service_id as the model.")]


class Deployed(Answer):
    deployment_id: Annotated[str, describe("The name of the service.")]
    status: Annotated[str, describe("Its state.")]


class InferredText(Answer):
    text: str
    usage: Annotated[dict[str, Any], describe("Tokens, as the engine counts them.")]
    deployment_id: str


class ServedModel(Answer):
    id: Annotated[str, describe("Its name, by which it is asked for.")]
    object: str
    created: Count
    owned_by: Annotated[str, describe("The tenant.")]
    ready: Annotated[Count, describe("Replicas that are ready, and that this coordinator reaches.")]
    context_length: Annotated[
        Count | None, describe("Most tokens of prompt and answer together in one request; null: not known.")
    ]
    max_model_len: Annotated[Count | None, describe("The same as context_length, under the name that vLLM uses.")]
    capabilities: Annotated[Many[str] | None, describe("completion, embedding or rerank; null: not known.")]


class ModelList(Answer):
    object: str
    data: Many[ServedModel]
