"""Answers about models and data, for the API's description and the tests."""

from __future__ import annotations

from coordinator.schemas import Answer, optional, required


class Model(Answer):
    model_name: str
    type: str = required("What its owner calls it, such as llm; empty where nobody said.")
    source: str = required("Where it is downloaded from; empty where that is not known.")
    status: str = required("ready, or registered: its source is known, and it was not downloaded.")
    bytes: int
    locations: list[str] = required("Where it lies: disk is the cluster's store; HOST:disk, HOST:dram, HOST:gpu0.")
    weights: list[str] = required("Paths of its files with weights.")
    services: list[str] = required("Services that have it.")
    artifact_id: str
    created: str = required("RFC 3339, UTC.")


class ModelPage(Answer):
    models: list[Model] = required("By name.")
    cursor: str | None = optional("Where the next page begins; left out on the last.")


class Chunk(Answer):
    chunk_id: str
    device: str = required("The first place where it lies besides the cluster's store; disk: at none.")
    locations: list[str] = required("Where it lies: disk is the cluster's store; HOST:disk, HOST:dram.")
    bytes: int
    files: int
    references: int = required("Names and jobs that have it.")
    artifact_id: str
    created: str = required("RFC 3339, UTC.")


class ChunkList(Answer):
    chunks: list[Chunk] = required("By their ids.")
    cursor: str | None = optional("Where the next page begins; left out on the last.")


class ChunkBegun(Answer):
    chunk_id: str = required("What it will be called once it is there.")
    task_id: str = required("The workflow that makes it: GET /api/workflows/ID.")


class TaskBegun(Answer):
    task_id: str = required("The workflow that does it: GET /api/workflows/ID.")
