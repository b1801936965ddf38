"""Types of responses about hosts."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Count, Many, describe
from threads_protocol.answers.fleet import Card, Disk, Worker


class Device(Answer):
    uuid: str
    index: Annotated[Count | None, describe("Index of the GPU on its host.")]
    name: Annotated[str, describe("Model name.")]
    worker: Annotated[str, describe("Worker that uses the GPU.")]
    job: Annotated[str | None, describe("Job that uses the GPU.")]
    idle: Annotated[bool, describe("True if neither the worker nor another process computes on the GPU.")]
    utilization_ratio: Annotated[float | None, describe("Utilization, 0..1. In this object, null means unknown.")]
    memory_used_bytes: Count | None
    memory_total_bytes: Count | None
    temperature_celsius: float | None
    power_watts: float | None
    cordoned: Annotated[str | None, describe("Why the worker starts no work on the GPU; null if it does.")]


class Host(Answer):
    host: str
    live: Annotated[bool, describe("True if at least one of the host's workers is live.")]
    workers: Annotated[Many[str], describe("Names of the host's workers, live workers first.")]
    lanes: Annotated[Count, describe("Number of lanes of the live workers.")]
    busy_lanes: Count
    draining: Annotated[bool, describe("True if all live workers are draining.")]
    seen_seconds_ago: float
    cpus: Annotated[Count | None, describe("Number of CPUs; null if no worker reported it.")]
    cpu_ratio: Annotated[float | None, describe("CPU utilization, where 1 is all processors.")]
    load1: Annotated[float | None, describe("Running and waiting processes, averaged over a minute; null: unknown.")]
    memory_used_bytes: Count | None
    memory_total_bytes: Count | None
    network_receive_bytes_per_second: Annotated[
        float | None, describe("Bytes per second of all networks visible to the live workers.")
    ]
    network_transmit_bytes_per_second: float | None
    disks: Annotated[Many[Disk], describe("Disks that the live workers write to.")]
    gpus: Annotated[Many[str], describe("Model names of the host's GPUs.")]
    devices: Annotated[Many[Device], describe("GPUs that a worker uses.")]
    labels: Annotated[Many[str], describe("Labels that the host's runners reported or that the operator assigned.")]
    given_labels: Annotated[
        Many[str], describe("Labels that the operator assigned to all live workers. Tenants can require them.")
    ]
    cards: Annotated[
        Many[Card], describe("AMD and Intel GPUs that the kernel reports. Workers do not compute on them.")
    ]
    versions: Annotated[
        dict[str, Many[str]],
        describe(
            "Versions of threads_cluster, python, numba and driver on the live workers. Several versions "
            "are possible during an update."
        ),
    ]
    clock_offset_seconds: Annotated[
        float | None,
        describe(
            "Seconds by which the host's clock is ahead of Redis's, accurate to half of a heartbeat's "
            "round trip; null: unknown."
        ),
    ]
    score: Annotated[
        float | None,
        describe("Load score: 100 * load1 / cpus + 300 * mean GPU utilization; null: unknown."),
    ]


class HostDetail(Host):
    worker_rows: Annotated[Many[Worker], describe("The host's workers, live workers first.")]


class HostList(Answer):
    hosts: Many[Host]


class JoinedWorker(Answer):
    worker: Annotated[str, describe("Name of the worker and of its token.")]
    token: Annotated[str, describe("The worker's token. Only this response contains it.")]


class Joined(Answer):
    version: Annotated[str, describe("Version of the cluster.")]
    workers: Many[JoinedWorker]
