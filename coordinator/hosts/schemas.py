"""Answers about hosts, for the API's description and the tests."""

from __future__ import annotations

from coordinator.schemas import Answer, required


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
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    gpus: list[str] = required("Models of its GPUs.")
    labels: list[str] = required("Labels of its runners.")


class HostList(Answer):
    hosts: list[Host]


class JoinedWorker(Answer):
    worker: str = required("Name of the worker, and of its token.")
    token: str = required("Its token. It is shown in this answer and never again.")


class Joined(Answer):
    version: str = required("Version of the cluster.")
    workers: list[JoinedWorker]
