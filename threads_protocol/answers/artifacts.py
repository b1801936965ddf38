"""Responses about artifacts."""

from __future__ import annotations

from typing import Annotated, NotRequired

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Artifact(Answer):
    artifact_id: Annotated[str, describe("SHA-256 of its manifest.")]
    tenant: str
    names: Annotated[Many[str], describe("Names that point to it, and keep it.")]
    files: Annotated[Count, describe("Its files, each path counted.")]
    bytes: Annotated[Count, describe("Bytes of its files, each path counted.")]
    manifest_bytes: Count
    created: Annotated[Moment, describe("RFC 3339, UTC.")]
    held_by: Annotated[
        Many[str], describe("What else keeps it, such as job:ID; it cannot be deleted until that is gone.")
    ]


class ArtifactList(Answer):
    artifacts: Annotated[Many[Artifact], describe("Newest first.")]
    cursor: NotRequired[Annotated[str, describe("Where the next page begins; left out on the last.")]]


class Committed(Answer):
    artifact: Artifact
    new: Annotated[bool, describe("False where it was there.")]


class MissingFiles(Answer):
    missing: Annotated[
        Many[str], describe("Those of the files that are to be uploaded; the others stay for a day at least.")
    ]
    parts: Annotated[dict[str, Many[Count]], describe("Numbers of the parts that are there, of files that were begun.")]
    part_bytes: Annotated[Count, describe("Bytes of every part but the last.")]
    bundle_files: Annotated[Count, describe("Most files of a bundle.")]
    bundle_bytes: Annotated[Count, describe("Most bytes of a bundle's files.")]


class StoredFiles(Answer):
    files: Annotated[Count, describe("Files that were not there.")]
    bytes: Annotated[Count, describe("Their bytes.")]


class StoredPart(Answer):
    missing: Annotated[Many[Count], describe("Numbers of the first parts that are missing still, at most 1,000.")]
