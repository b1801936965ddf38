"""Types of responses about artifacts."""

from __future__ import annotations

from typing import Annotated, NotRequired

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Artifact(Answer):
    artifact_id: Annotated[str, describe("SHA-256 of the artifact's manifest.")]
    tenant: str
    names: Annotated[Many[str], describe("Names of the artifact. A named artifact is not garbage-collected.")]
    files: Annotated[Count, describe("Number of files. A file counts once for each path.")]
    bytes: Annotated[Count, describe("Size of the files in bytes. A file counts once for each path.")]
    manifest_bytes: Count
    created: Annotated[Moment, describe("Time of creation, in RFC 3339 and UTC.")]
    held_by: Annotated[
        Many[str], describe("Other references, such as job:ID. The artifact cannot be deleted while it has any.")
    ]


class ArtifactList(Answer):
    artifacts: Annotated[Many[Artifact], describe("Artifacts, newest first.")]
    cursor: NotRequired[Annotated[str, describe("Cursor of the next page; omitted on the last page.")]]


class Committed(Answer):
    artifact: Artifact
    new: Annotated[bool, describe("False if the artifact already existed.")]


class MissingFiles(Answer):
    missing: Annotated[
        Many[str],
        describe("Requested files that need to be uploaded. The cluster keeps the others for at least a day."),
    ]
    parts: Annotated[dict[str, Many[Count]], describe("Numbers of the existing parts of partially uploaded files.")]
    part_bytes: Annotated[Count, describe("Size in bytes of every part except the last.")]
    bundle_files: Annotated[Count, describe("Maximum number of files in a bundle.")]
    bundle_bytes: Annotated[Count, describe("Maximum total size in bytes of a bundle's files.")]


class StoredFiles(Answer):
    files: Annotated[Count, describe("Number of new files.")]
    bytes: Annotated[Count, describe("Size of the new files in bytes.")]


class StoredPart(Answer):
    missing: Annotated[Many[Count], describe("Numbers of the first missing parts, up to 1,000.")]
