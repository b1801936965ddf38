"""Answers about hosts, for the API's description and the tests."""

from __future__ import annotations

from coordinator.fleet.schemas import Card, Disk, Worker
from coordinator.schemas import Answer, required


class Device(Answer):
    uuid: str
    index: int | None = required("On its host.")
    name: str = required("The model's.")
    worker: str = required("The worker that has it.")
    job: str | None = required("The job that the worker holds.")
    idle: bool = required("The worker has it and computes nothing, and nobody else does there.")
    utilization_ratio: float | None = required("0..1; null, here and below: not known.")
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_celsius: float | None
    power_watts: float | None
    cordoned: str | None = required("Why its worker gives it no work; null: it does.")


class Host(Answer):
    host: str
    live: bool = required("Whether one of its workers lives.")
    workers: list[str] = required("Names of its workers, those that live first.")
    lanes: int = required("Of its live workers.")
    busy_lanes: int
    draining: bool = required("Whether all of its live workers are being drained.")
    seen_seconds_ago: float
    cpus: int | None = required("null: no worker told it.")
    cpu_ratio: float | None = required("Processors in use: 1 is all of them.")
    load1: float | None = required("Processes that run or wait to, averaged over a minute; null: not known.")
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    network_receive_bytes_per_second: float | None = required("Of all networks that its live workers see.")
    network_transmit_bytes_per_second: float | None
    disks: list[Disk] = required("Disks that its live workers fill.")
    gpus: list[str] = required("Models of its GPUs.")
    devices: list[Device] = required("Its GPUs that a worker has.")
    labels: list[str] = required("Labels that its runners say of themselves or were given.")
    given_labels: list[str] = required(
        "Labels that the operator gave all of its live workers: tenants may require them."
    )
    cards: list[Card] = required("GPUs of AMD and Intel as the kernel shows them: no worker computes on them.")
    versions: dict[str, list[str]] = required(
        "Of threads_cluster, python, numba and driver, as its live workers name them; several during an update."
    )
    clock_offset_seconds: float | None = required(
        "By how much its clock is ahead of Redis', give or take half of a heartbeat's round trip; null: not known."
    )
    score: float | None = required(
        "How busy it is: 100 * load1 / cpus + 300 * mean utilization of its GPUs; null: not known."
    )


class HostDetail(Host):
    worker_rows: list[Worker] = required("Its workers, those that live first.")


class HostList(Answer):
    hosts: list[Host]


class JoinedWorker(Answer):
    worker: str = required("Name of the worker, and of its token.")
    token: str = required("Its token. It is shown in this answer and never again.")


class Joined(Answer):
    version: str = required("Version of the cluster.")
    workers: list[JoinedWorker]
