"""Answers about artifacts, for the API's description and the tests."""

from __future__ import annotations

from coordinator.schemas import Answer, optional, required


class Artifact(Answer):
    artifact_id: str = required("SHA-256 of its manifest.")
    tenant: str
    names: list[str] = required("Names that point to it, and keep it.")
    files: int = required("Its files, each path counted.")
    bytes: int = required("Bytes of its files, each path counted.")
    manifest_bytes: int
    created: str = required("RFC 3339, UTC.")
    held_by: list[str] = required("What else keeps it, such as job:ID; it cannot be deleted until that is gone.")


class ArtifactList(Answer):
    artifacts: list[Artifact] = required("Newest first.")
    cursor: str | None = optional("Where the next page begins; left out on the last.")


class Committed(Answer):
    artifact: Artifact
    new: bool = required("False where it was there.")


class MissingFiles(Answer):
    missing: list[str] = required("Those of the files that are to be uploaded; the others stay for a day at least.")
    parts: dict[str, list[int]] = required("Numbers of the parts that are there, of files that were begun.")
    part_bytes: int = required("Bytes of every part but the last.")
    bundle_files: int = required("Most files of a bundle.")
    bundle_bytes: int = required("Most bytes of a bundle's files.")


class StoredFiles(Answer):
    files: int = required("Files that were not there.")
    bytes: int = required("Their bytes.")


class StoredPart(Answer):
    missing: list[int] = required("Numbers of the first parts that are missing still, at most 1,000.")
