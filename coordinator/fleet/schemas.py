"""Answers about workers and queues, for the API's description and the tests."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from coordinator.schemas import Answer, optional, required
from jobs.models import JobState


class Gpu(BaseModel):
    """A GPU as its worker sees it; what the worker does not know is left out."""

    model_config = ConfigDict(extra="allow")

    uuid: str
    index: int | None = optional("On its host.")
    name: str | None = optional("The model's.")
    utilization_ratio: float | None = optional("0..1")
    sm_active_ratio: float | None = optional("0..1")
    memory_used_bytes: int | None = optional()
    memory_total_bytes: int | None = optional()
    temperature_celsius: float | None = optional()
    power_watts: float | None = optional()
    energy_joules_total: float | None = optional()
    clock_sm_hertz: float | None = optional()
    clock_memory_hertz: float | None = optional()
    pcie_receive_bytes_per_second: float | None = optional()
    pcie_transmit_bytes_per_second: float | None = optional()
    throttle_reasons: list[str] | None = optional()


class FleetGpu(Gpu):
    worker: str
    live: bool = required("Whether its worker lives.")
    job: str | None = required("The job that its worker holds: null and utilization 0 is a GPU allocated and idle.")


class OfferedGpu(Answer):
    name: str | None = optional()
    memory_mib: int
    compute_capability: str


class Offer(Answer):
    cpus: float
    memory_mib: float
    gpus: list[OfferedGpu]
    host: str
    labels: list[str]
    tenant: str | None = optional()


class Disk(Answer):
    disk: str = required("Its number, as 8:1.")
    places: list[str] = required("What it is used for: data (.cluster), temporary, runner (RUNNER_DIR).")
    free_bytes: int
    total_bytes: int


class Card(Answer):
    card: str = required("As the kernel names it, such as card0.")
    name: str
    utilization_ratio: float | None = optional("0..1")
    memory_used_bytes: int | None = optional()
    memory_total_bytes: int | None = optional()
    temperature_celsius: float | None = optional()
    power_watts: float | None = optional()
    clock_hertz: float | None = optional()


class Worker(Answer):
    id: str
    device: str | None
    state: str = required("starting, parked (programs have its GPU), idle, busy, draining, drained, stopped or lost.")
    live: bool
    lanes: int
    busy_lanes: int
    job: str | None = required("The job whose ranges it leases.")
    host: str | None = required("The machine that it runs on: HOST_ID.")
    network: str = required("Number of the network that it sees, one a host and one a container; 0: not known.")
    draining: bool
    seen_seconds_ago: float
    cpu_ratio: float = required("0..1, of the whole host.")
    rates: dict[str, float] = required("Units/s of a lane, by kind.")
    cpus: int | None = optional()
    memory_used_bytes: int | None = optional()
    memory_total_bytes: int | None = optional()
    network_receive_bytes_total: int | None = optional()
    network_transmit_bytes_total: int | None = optional()
    network_receive_bytes_per_second: float | None = optional()
    network_transmit_bytes_per_second: float | None = optional()
    load1: float | None = optional("Of the host: processes that run or wait to, averaged over a minute.")
    disks: list[Disk] | None = optional("Room on the disks that it fills.")
    versions: dict[str, str] | None = optional("threads_cluster, python, numba, driver: what there is of them.")
    clock_offset_seconds: float | None = optional(
        "By how much its clock is ahead of Redis', give or take half of a heartbeat's round trip."
    )
    pid: int | None = optional()
    gpus: list[Gpu] | None = optional()
    retired: str | None = optional("Why a worker ended whose device failed.")
    refused: str | None = optional(
        "Kinds that a worker computes no more, each with the reason: its kernel did not know a known answer."
    )
    cpu_energy_joules_total: float | None = optional(
        "Of the CPU packages since the worker began, where it may be read."
    )
    cpu_level: str | None = optional("Of a CPU worker: instructions that its kernels use: v2, avx2, avx512 or aarch64.")
    offer: Offer | None = optional("Of a runner: what it has in all.")
    isolation: str | None = optional("Of a runner: uid, where each slot has a user of its own, or shared.")
    running: list[tuple[str, int]] | None = optional("Of a runner: job and unit of programs that run, at most 64.")
    cordoned: str | None = optional("Why a runner, or a worker whose GPU is sick, takes no work by itself.")
    reserved_for: str | None = optional("Of a runner: the job that it is kept for, which needs more than is free.")
    labels: list[str] | None = optional("Labels that the operator gave its host, which tenants may require.")
    cards: list[Card] | None = optional("GPUs of AMD and Intel on its host, on which no worker computes.")


class WorkerList(Answer):
    workers: list[Worker]


class Drained(Answer):
    id: str
    draining: bool


class WorkerCounts(Answer):
    live: int
    ready: int
    cpu: dict[str, int] = required("Live ones by state.")
    gpu: dict[str, int]
    runner: dict[str, int]


class Status(Answer):
    version: str
    cluster_size: int | None = required("Workers wanted.")
    desired_workers: dict[str, int] = required("Workers that the work needs, by device; empty while nobody counts.")
    workers: WorkerCounts
    lanes: int
    jobs: dict[JobState, int]
    queues: dict[str, int] = required("Jobs that wait, by queue; empty ones are left out.")
    oldest_wait_seconds: float
    units_per_second: dict[str, float] = required("By kind, over the jobs that run.")


class Queue(Answer):
    queue: str
    jobs: int
    bells: int
    oldest_wait_seconds: float
