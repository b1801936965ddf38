"""Responses about workers and queues."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from threads_protocol.answers.fields import Answer, Count, Many, State, describe


@with_config(extra="allow", strict=True, allow_inf_nan=False)
class Gpu(TypedDict):
    """A GPU as reported by its worker. Fields that the worker does not know are omitted."""

    uuid: str
    index: NotRequired[Annotated[Count, describe("On its host.")]]
    name: NotRequired[Annotated[str, describe("The model's.")]]
    utilization_ratio: NotRequired[Annotated[float, describe("0..1")]]
    sm_active_ratio: NotRequired[Annotated[float, describe("0..1")]]
    memory_used_bytes: NotRequired[Count]
    memory_total_bytes: NotRequired[Count]
    temperature_celsius: NotRequired[float]
    power_watts: NotRequired[float]
    energy_joules_total: NotRequired[float]
    clock_sm_hertz: NotRequired[float]
    clock_memory_hertz: NotRequired[float]
    pcie_receive_bytes_per_second: NotRequired[float]
    pcie_transmit_bytes_per_second: NotRequired[float]
    throttle_reasons: NotRequired[Many[str]]


class FleetGpu(Gpu):
    worker: str
    live: Annotated[bool, describe("Whether its worker lives.")]
    job: Annotated[
        str | None, describe("The job that its worker holds: null and utilization 0 is a GPU allocated and idle.")
    ]


class OfferedGpu(Answer):
    name: NotRequired[str]
    memory_mib: Count
    compute_capability: str


class Offer(Answer):
    cpus: float
    memory_mib: float
    gpus: Many[OfferedGpu]
    host: str
    labels: Many[str]
    tenant: NotRequired[str]


class Disk(Answer):
    disk: Annotated[str, describe("Its number, as 8:1.")]
    places: Annotated[Many[str], describe("What it is used for: data (.cluster), temporary, runner (RUNNER_DIR).")]
    free_bytes: Count
    total_bytes: Count


class Card(Answer):
    card: Annotated[str, describe("As the kernel names it, such as card0.")]
    name: str
    utilization_ratio: NotRequired[Annotated[float, describe("0..1")]]
    memory_used_bytes: NotRequired[Count]
    memory_total_bytes: NotRequired[Count]
    temperature_celsius: NotRequired[float]
    power_watts: NotRequired[float]
    clock_hertz: NotRequired[float]


class Worker(Answer):
    id: str
    device: str | None
    state: Annotated[
        str, describe("starting, parked (programs have its GPU), idle, busy, draining, drained, stopped or lost.")
    ]
    live: bool
    lanes: Count
    busy_lanes: Count
    job: Annotated[str | None, describe("The job whose ranges it leases.")]
    host: Annotated[str | None, describe("The machine that it runs on: HOST_ID.")]
    network: Annotated[
        str, describe("Number of the network that it sees, one a host and one a container; 0: not known.")
    ]
    draining: bool
    seen_seconds_ago: float
    cpu_ratio: Annotated[float, describe("0..1, of the whole host.")]
    rates: Annotated[dict[str, float], describe("Units/s of a lane, by kind.")]
    cpus: NotRequired[Count]
    memory_used_bytes: NotRequired[Count]
    memory_total_bytes: NotRequired[Count]
    network_receive_bytes_total: NotRequired[Count]
    network_transmit_bytes_total: NotRequired[Count]
    network_receive_bytes_per_second: NotRequired[float]
    network_transmit_bytes_per_second: NotRequired[float]
    load1: NotRequired[
        Annotated[float, describe("Of the host: processes that run or wait to, averaged over a minute.")]
    ]
    disks: NotRequired[Annotated[Many[Disk], describe("Room on the disks that it fills.")]]
    versions: NotRequired[
        Annotated[dict[str, str], describe("threads_cluster, python, numba, driver: what there is of them.")]
    ]
    clock_offset_seconds: NotRequired[
        Annotated[
            float, describe("By how much its clock is ahead of Redis', give or take half of a heartbeat's round trip.")
        ]
    ]
    pid: NotRequired[Count]
    gpus: NotRequired[Many[Gpu]]
    retired: NotRequired[Annotated[str, describe("Why a worker ended whose device failed.")]]
    refused: NotRequired[
        Annotated[
            str,
            describe(
                "Kinds that a worker computes no more, each with the reason: its kernel did not know a known answer."
            ),
        ]
    ]
    cpu_energy_joules_total: NotRequired[
        Annotated[float, describe("Of the CPU packages since the worker began, where it may be read.")]
    ]
    cpu_level: NotRequired[
        Annotated[str, describe("Of a CPU worker: instructions that its kernels use: v2, avx2, avx512 or aarch64.")]
    ]
    offer: NotRequired[Annotated[Offer, describe("Of a runner: what it has in all.")]]
    isolation: NotRequired[Annotated[str, describe("Of a runner: uid if each slot has its own user, else shared.")]]
    running: NotRequired[
        Annotated[
            Many[Annotated[tuple[str, Count], Field(strict=False)]],
            describe("Of a runner: job and unit of programs that run, at most 64."),
        ]
    ]
    cordoned: NotRequired[
        Annotated[str, describe("Why a runner, or a worker whose GPU is sick, takes no work by itself.")]
    ]
    reserved_for: NotRequired[
        Annotated[str, describe("Of a runner: the job that it is kept for, which needs more than is free.")]
    ]
    labels: NotRequired[
        Annotated[Many[str], describe("Labels that the operator gave its host, which tenants may require.")]
    ]
    cards: NotRequired[
        Annotated[Many[Card], describe("GPUs of AMD and Intel on its host, on which no worker computes.")]
    ]


class WorkerList(Answer):
    workers: Many[Worker]


class Drained(Answer):
    id: str
    draining: bool


class WorkerCounts(Answer):
    live: Count
    ready: Count
    cpu: Annotated[dict[str, Count], describe("Live ones by state.")]
    gpu: dict[str, Count]
    runner: dict[str, Count]


class Status(Answer):
    version: str
    cluster_size: Annotated[Count | None, describe("Workers wanted.")]
    desired_workers: Annotated[
        dict[str, Count], describe("Workers that the work needs, by device; empty if autoscaling is off.")
    ]
    workers: WorkerCounts
    lanes: Count
    jobs: dict[State, Count]
    queues: Annotated[dict[str, Count], describe("Jobs that wait, by queue; empty ones are left out.")]
    oldest_wait_seconds: float
    units_per_second: Annotated[dict[str, float], describe("By kind, over the jobs that run.")]


class Queue(Answer):
    queue: str
    jobs: Count
    bells: Count
    oldest_wait_seconds: float
