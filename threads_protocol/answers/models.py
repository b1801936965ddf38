"""Types of responses about models and data."""

from __future__ import annotations

from typing import Annotated, NotRequired

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Model(Answer):
    model_name: str
    type: Annotated[str, describe("Type that the owner assigned, such as llm; empty if none.")]
    source: Annotated[str, describe("Source of the download; empty if unknown.")]
    status: Annotated[
        str, describe("ready, or registered if only the source is known and the model was not downloaded.")
    ]
    bytes: Count
    locations: Annotated[
        Many[str], describe("Locations of copies: disk (the cluster's store), HOST:disk, HOST:dram, HOST:gpu0.")
    ]
    weights: Annotated[Many[str], describe("Paths of the model's weight files.")]
    services: Annotated[Many[str], describe("Services that use the model.")]
    artifact_id: str
    created: Annotated[Moment, describe("Time of creation, in RFC 3339 and UTC.")]


class ModelPage(Answer):
    models: Annotated[Many[Model], describe("Models, sorted by name.")]
    cursor: NotRequired[Annotated[str, describe("Cursor of the next page; omitted on the last page.")]]


class Chunk(Answer):
    chunk_id: str
    device: Annotated[str, describe("First location of a copy outside the cluster's store; disk if there is none.")]
    locations: Annotated[Many[str], describe("Locations of copies: disk (the cluster's store), HOST:disk, HOST:dram.")]
    bytes: Count
    files: Count
    references: Annotated[Count, describe("Number of names and jobs that refer to the chunk.")]
    artifact_id: str
    created: Annotated[Moment, describe("Time of creation, in RFC 3339 and UTC.")]


class ChunkList(Answer):
    chunks: Annotated[Many[Chunk], describe("Chunks, sorted by ID.")]
    cursor: NotRequired[Annotated[str, describe("Cursor of the next page; omitted on the last page.")]]


class ChunkBegun(Answer):
    chunk_id: Annotated[str, describe("ID of the chunk once it exists.")]
    task_id: Annotated[str, describe("Workflow that creates the chunk: GET /api/workflows/ID.")]


class TaskBegun(Answer):
    task_id: Annotated[str, describe("Workflow that performs the operation: GET /api/workflows/ID.")]
