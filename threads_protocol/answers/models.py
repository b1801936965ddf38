"""Responses about models and data."""

from __future__ import annotations

from typing import Annotated, NotRequired

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Model(Answer):
    model_name: str
    type: Annotated[str, describe("Type that its owner gave it, such as llm; empty if none was given.")]
    source: Annotated[str, describe("Where it is downloaded from; empty where that is not known.")]
    status: Annotated[str, describe("ready, or registered: its source is known, and it was not downloaded.")]
    bytes: Count
    locations: Annotated[
        Many[str], describe("Where it lies: disk is the cluster's store; HOST:disk, HOST:dram, HOST:gpu0.")
    ]
    weights: Annotated[Many[str], describe("Paths of its files with weights.")]
    services: Annotated[Many[str], describe("Services that have it.")]
    artifact_id: str
    created: Annotated[Moment, describe("RFC 3339, UTC.")]


class ModelPage(Answer):
    models: Annotated[Many[Model], describe("By name.")]
    cursor: NotRequired[Annotated[str, describe("Where the next page begins; left out on the last.")]]


class Chunk(Answer):
    chunk_id: str
    device: Annotated[str, describe("The first location of a copy outside the cluster's store; disk if there is none.")]
    locations: Annotated[Many[str], describe("Where it lies: disk is the cluster's store; HOST:disk, HOST:dram.")]
    bytes: Count
    files: Count
    references: Annotated[Count, describe("Names and jobs that have it.")]
    artifact_id: str
    created: Annotated[Moment, describe("RFC 3339, UTC.")]


class ChunkList(Answer):
    chunks: Annotated[Many[Chunk], describe("By their ids.")]
    cursor: NotRequired[Annotated[str, describe("Where the next page begins; left out on the last.")]]


class ChunkBegun(Answer):
    chunk_id: Annotated[str, describe("What it will be called once it is there.")]
    task_id: Annotated[str, describe("The workflow that makes it: GET /api/workflows/ID.")]


class TaskBegun(Answer):
    task_id: Annotated[str, describe("The workflow that does it: GET /api/workflows/ID.")]
