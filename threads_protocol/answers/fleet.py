"""Types of responses about workers and queues."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from threads_protocol.answers.fields import Answer, Count, Many, State, describe


@with_config(extra="allow", strict=True, allow_inf_nan=False)
class Gpu(TypedDict):
    """A GPU as reported by its worker. Fields with unknown values are omitted."""

    uuid: str
    index: NotRequired[Annotated[Count, describe("Index of the GPU on its host.")]]
    name: NotRequired[Annotated[str, describe("Model name.")]]
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


class ReportedGpu(Gpu):
    """A GPU as reported by its worker, with the job that uses it. Fields with unknown values are omitted."""

    job: NotRequired[Annotated[str, describe("Job that has reserved the GPU of a runner.")]]


class FleetGpu(Gpu):
    worker: str
    live: Annotated[bool, describe("True if the GPU's worker is live.")]
    job: Annotated[
        str | None,
        describe(
            "Job whose leases the GPU worker holds, or that has reserved the GPU of a runner. If it is null at"
            " utilization 0, the GPU is idle."
        ),
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
    disk: Annotated[str, describe("Device number of the disk, such as 8:1.")]
    places: Annotated[Many[str], describe("Uses of the disk: data (.cluster), temporary, runner (RUNNER_DIR).")]
    free_bytes: Count
    total_bytes: Count


class Card(Answer):
    card: Annotated[str, describe("Kernel name of the card, such as card0.")]
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
        str, describe("starting, parked (programs use its GPU), idle, busy, draining, drained, stopped or lost.")
    ]
    live: bool
    lanes: Count
    busy_lanes: Count
    job: Annotated[str | None, describe("Job whose leases the worker holds.")]
    host: Annotated[str | None, describe("HOST_ID of the machine.")]
    network: Annotated[
        str,
        describe("Number of the worker's network namespace, shared by workers of one host or container; 0: unknown."),
    ]
    draining: bool
    seen_seconds_ago: float
    cpu_ratio: Annotated[float, describe("CPU utilization of the whole host, 0..1.")]
    rates: Annotated[dict[str, float], describe("Units per second of one lane, by kind.")]
    cpus: NotRequired[Count]
    memory_used_bytes: NotRequired[Count]
    memory_total_bytes: NotRequired[Count]
    network_receive_bytes_total: NotRequired[Count]
    network_transmit_bytes_total: NotRequired[Count]
    network_receive_bytes_per_second: NotRequired[float]
    network_transmit_bytes_per_second: NotRequired[float]
    load1: NotRequired[
        Annotated[float, describe("Load of the host: running and waiting processes, averaged over a minute.")]
    ]
    disks: NotRequired[Annotated[Many[Disk], describe("Disks that the worker writes to, with their free space.")]]
    versions: NotRequired[
        Annotated[dict[str, str], describe("Versions of threads_cluster, python, numba and driver, if present.")]
    ]
    clock_offset_seconds: NotRequired[
        Annotated[
            float,
            describe(
                "Seconds by which the host's clock is ahead of Redis's, accurate to half of a heartbeat's round trip."
            ),
        ]
    ]
    pid: NotRequired[Count]
    gpus: NotRequired[Many[ReportedGpu]]
    retired: NotRequired[Annotated[str, describe("Why the worker retired after its device failed.")]]
    refused: NotRequired[
        Annotated[
            str,
            describe(
                "Kinds that the worker no longer computes because its kernel failed a known-answer test, with reasons."
            ),
        ]
    ]
    compiling: NotRequired[
        Annotated[
            Many[str],
            describe(
                "Kinds whose kernels the worker is compiling or loading. Until then, it takes none of their jobs."
            ),
        ]
    ]
    cpu_energy_joules_total: NotRequired[
        Annotated[float, describe("Energy of the CPU packages since the worker started, if readable.")]
    ]
    cpu_level: NotRequired[
        Annotated[str, describe("Instruction set of a CPU worker's kernels: v2, avx2, avx512 or aarch64.")]
    ]
    offer: NotRequired[Annotated[Offer, describe("Total resources of a runner.")]]
    isolation: NotRequired[
        Annotated[str, describe("Isolation of a runner's slots: uid if each slot has its own user, else shared.")]
    ]
    running: NotRequired[
        Annotated[
            Many[Annotated[tuple[str, Count], Field(strict=False)]],
            describe("Job and unit of the programs running on a runner, up to 64."),
        ]
    ]
    cordoned: NotRequired[Annotated[str, describe("Why a runner, or a worker with a faulty GPU, accepts no work.")]]
    reserved_for: NotRequired[
        Annotated[
            str, describe("Job for which a runner is reserved because the job needs more resources than are free.")
        ]
    ]
    labels: NotRequired[
        Annotated[Many[str], describe("Labels that the operator assigned to the host. Tenants can require them.")]
    ]
    cards: NotRequired[
        Annotated[Many[Card], describe("AMD and Intel GPUs of the host. Workers do not compute on them.")]
    ]


class WorkerList(Answer):
    workers: Many[Worker]


class Drained(Answer):
    id: str
    draining: bool


class WorkerCounts(Answer):
    live: Count
    ready: Count
    cpu: Annotated[dict[str, Count], describe("Live CPU workers by state.")]
    gpu: dict[str, Count]
    runner: dict[str, Count]


class Status(Answer):
    version: str
    cluster_size: Annotated[Count | None, describe("Desired number of workers.")]
    desired_workers: Annotated[
        dict[str, Count], describe("Workers needed for the current work, by device; empty if autoscaling is off.")
    ]
    workers: WorkerCounts
    lanes: Count
    jobs: dict[State, Count]
    queues: Annotated[dict[str, Count], describe("Waiting jobs by queue, without empty queues.")]
    oldest_wait_seconds: float
    units_per_second: Annotated[dict[str, float], describe("Units per second by kind, summed over running jobs.")]
    compiling: NotRequired[
        Annotated[Many[str], describe("Kinds whose kernels live workers are compiling or loading, if there are any.")]
    ]


class Queue(Answer):
    queue: str
    jobs: Count
    bells: Count
    oldest_wait_seconds: float
