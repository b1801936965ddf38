"""Tasks of one action about models or data: workflows that are followed, cancelled and retried as all others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from fastapi import Header

from coordinator.asker import Asker
from coordinator.cluster import Cluster
from coordinator.jobs import submissions
from coordinator.workflows import submitting

#: Names a request, so that a repeated one begins nothing more.
Key: TypeAlias = Annotated[str | None, Header(alias="Idempotency-Key", max_length=submissions.MAX_KEY)]


def begin(cluster: Cluster, asker: Asker, action: str, of: str, key: str | None, fields: Mapping[str, Any]) -> str:
    """Submit a workflow of one action and return its id; that of the one that was begun with this key.

    `of`: the model or the chunk that it is about. Errors as `submitting.submit`.
    """
    row = {"action_id": action, "action_type": action, **fields}
    text = json.dumps({"name": f"{action} {of}", "actions": [row]}).encode()
    named = f"task@{asker.tenant}:{key}" if key else ""
    return submitting.submit(cluster.store.workflows, cluster.settings, text, asker, key=named)
