"""Responses about hosts."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Count, Many, describe
from threads_protocol.answers.fleet import Card, Disk, Worker


class Device(Answer):
    uuid: str
    index: Annotated[Count | None, describe("On its host.")]
    name: Annotated[str, describe("The model's.")]
    worker: Annotated[str, describe("The worker that has it.")]
    job: Annotated[str | None, describe("The job that the worker holds.")]
    idle: Annotated[bool, describe("True if neither the worker nor any other process computes on it.")]
    utilization_ratio: Annotated[float | None, describe("0..1; null, here and below: not known.")]
    memory_used_bytes: Count | None
    memory_total_bytes: Count | None
    temperature_celsius: float | None
    power_watts: float | None
    cordoned: Annotated[str | None, describe("Why its worker gives it no work; null: it does.")]


class Host(Answer):
    host: str
    live: Annotated[bool, describe("Whether one of its workers lives.")]
    workers: Annotated[Many[str], describe("Names of its workers, those that live first.")]
    lanes: Annotated[Count, describe("Of its live workers.")]
    busy_lanes: Count
    draining: Annotated[bool, describe("Whether all of its live workers are being drained.")]
    seen_seconds_ago: float
    cpus: Annotated[Count | None, describe("null if no worker reported it.")]
    cpu_ratio: Annotated[float | None, describe("Processors in use: 1 is all of them.")]
    load1: Annotated[float | None, describe("Processes that run or wait to, averaged over a minute; null: not known.")]
    memory_used_bytes: Count | None
    memory_total_bytes: Count | None
    network_receive_bytes_per_second: Annotated[float | None, describe("Of all networks that its live workers see.")]
    network_transmit_bytes_per_second: float | None
    disks: Annotated[Many[Disk], describe("Disks that its live workers fill.")]
    gpus: Annotated[Many[str], describe("Models of its GPUs.")]
    devices: Annotated[Many[Device], describe("Its GPUs that a worker has.")]
    labels: Annotated[Many[str], describe("Labels that its runners say of themselves or were given.")]
    given_labels: Annotated[
        Many[str], describe("Labels that the operator gave all of its live workers: tenants may require them.")
    ]
    cards: Annotated[
        Many[Card], describe("GPUs of AMD and Intel as the kernel shows them: no worker computes on them.")
    ]
    versions: Annotated[
        dict[str, Many[str]],
        describe(
            "Of threads_cluster, python, numba and driver, as its live workers name them; several during an update."
        ),
    ]
    clock_offset_seconds: Annotated[
        float | None,
        describe(
            "By how much its clock is ahead of Redis', give or take half of a heartbeat's round trip; null: not known."
        ),
    ]
    score: Annotated[
        float | None,
        describe("How busy it is: 100 * load1 / cpus + 300 * mean utilization of its GPUs; null: not known."),
    ]


class HostDetail(Host):
    worker_rows: Annotated[Many[Worker], describe("Its workers, those that live first.")]


class HostList(Answer):
    hosts: Many[Host]


class JoinedWorker(Answer):
    worker: Annotated[str, describe("Name of the worker, and of its token.")]
    token: Annotated[str, describe("Its token. It is shown in this answer and never again.")]


class Joined(Answer):
    version: Annotated[str, describe("Version of the cluster.")]
    workers: Many[JoinedWorker]
