"""Publish and delete artifacts for workflow actions that run in the coordinator.

Each method is idempotent, so a new leader can repeat a call.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from coordinator.artifacts.trees import Trees
from jobs import errors
from jobs.models import Actor
from jobs.store.files import PART_BYTES
from threads_protocol import manifest
from threads_protocol.manifest import Entry

#: Name of the file that contains a published JSON value.
VALUE_FILE = "value.json"


class ArtifactHost:
    """Publishes and deletes artifacts for one workflow."""

    def __init__(self, trees: Trees, actor: Actor) -> None:
        self._trees = trees
        self._actor = actor

    def publish(self, name: str, artifact: str | None, value: Any) -> str:
        """Point a name to an artifact, or to a new artifact that contains `value` as JSON; return the artifact ID."""
        tenant = self._actor.tenant
        if artifact is None:
            text = self._store_value(value)
        else:
            text = self._trees.manifest(tenant, self._trees.find(tenant, artifact))
        _, row = self._trees.commit(tenant, text, name, self._actor)
        return row.id

    def delete(self, artifact: str) -> None:
        """Delete an artifact by ID or name. Do nothing if it does not exist."""
        try:
            self._trees.delete(self._actor.tenant, artifact, self._actor)
        except errors.NotFound:
            return

    def _store_value(self, value: Any) -> bytes:
        """Store a value as a JSON file and return the manifest of a tree that contains only this file."""
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        if len(data) > PART_BYTES:
            raise errors.TooLarge(f"value: has {len(data)} bytes as JSON; the maximum is {PART_BYTES}", field="value")
        sha = hashlib.sha256(data).hexdigest()
        self._trees.transfers.put_part(self._actor.tenant, sha, len(data), 0, data)
        return manifest.serialize([Entry(kind="f", path=VALUE_FILE, size=len(data), sha=sha)])
