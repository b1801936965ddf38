"""Workflows from Python: `Cluster().workflows`.

workflow = cluster.workflows.submit(Path("sweep.yaml").read_bytes())
cluster.workflows.wait(workflow["workflow_id"])
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from threads_cluster.client.resource import Json, Resource, pages, polled, quoted
from threads_cluster.errors import BadArgument
from threads_protocol.answers import workflows as answers

#: Text of a workflow as YAML or JSON, or the same as a mapping.
Text: TypeAlias = str | bytes | Mapping[str, Any]

#: States of a workflow that has ended, well or not.
TERMINAL = frozenset({"done", "failed", "cancelled"})
#: Seconds that validating a large text may take.
_LONG = 30.0
_YAML = "application/yaml"


class Workflows(Resource):
    """Workflows of one connection."""

    path = "/api/workflows"

    def submit(self, text: Text, *, notify: str | None = None) -> Json:
        """Submit a workflow and return it without its actions. ApiError 422: its `problem` has all problems.

        `notify`: a URL that is sent a signed POST when it has ended; it overrules that of the text.
        """
        if notify is not None and not (notify.isascii() and notify.isprintable()):
            raise BadArgument("notify: has characters that no URL has; write them with %")
        headers = {} if notify is None else {"Notify": notify}
        return self._send("", answers.Workflow, text, headers)

    def validate(self, text: Text) -> Json:
        """`{valid, name, actions, edges, layers, problems, notes, more}`; submits nothing."""
        return self._send("/validate", answers.Validation, text, {})

    def list(self, limit: int | None = None) -> Iterator[Json]:
        """Workflows, newest first, page by page as they are read."""

        def ask(cursor: str | None, size: int) -> Json:
            return self._ask("GET", "", answers.Workflows, cursor=cursor, limit=size)

        return pages(self._cluster.url, ask, "workflows", limit)

    def get(self, workflow: str, *, patience: float | None = None) -> Json:
        """The workflow with its actions, each after those that it waits for."""
        how = {} if patience is None else {"patience": patience}
        return self._ask("GET", f"/{quoted(workflow)}", answers.Course, **how)

    def action(self, workflow: str, action: str) -> Json:
        """One action with its parameters, and of a foreach its jobs."""
        return self._ask("GET", f"/{quoted(workflow)}/actions/{quoted(action)}", answers.ActionDetail)

    def follow(self, workflow: str, timeout: float | None = None) -> Iterator[Json]:
        """The workflow as it is, again and again until it has ended; TimedOut after `timeout` seconds."""

        def read() -> Json:
            return self.get(workflow, patience=self._cluster.wait_patience)

        return polled(read, lambda course: course["state"] in TERMINAL, f"workflow {workflow}", timeout)

    def wait(self, workflow: str, timeout: float | None = None) -> Json:
        """The workflow with its actions when it has ended, well or not. Errors as `follow`."""
        *_, course = self.follow(workflow, timeout)
        return course

    def cancel(self, workflow: str) -> Json:
        """Cancel a workflow, and its jobs that have not ended."""
        return self._ask("POST", f"/{quoted(workflow)}/cancel", answers.Workflow)

    def retry(self, workflow: str) -> Json:
        """Let a workflow that failed or was cancelled go on; what is done stays. `notes`: what begins anew."""
        return self._ask("POST", f"/{quoted(workflow)}/retry", answers.Retried)

    def approve(self, workflow: str, action: str) -> Json:
        """Let an action that waits for a person be done."""
        return self._ask("POST", f"/{quoted(workflow)}/actions/{quoted(action)}/approve", answers.Workflow)

    def delete(self, workflow: str) -> None:
        """Forget a workflow that has ended; its jobs stay."""
        self._ask("DELETE", f"/{quoted(workflow)}", None)

    def _send(self, below: str, shape: Any, text: Text, headers: Mapping[str, str]) -> Json:
        how: Json = {"octets": _octets(text), "kind": _YAML, "extra_seconds": _LONG, "headers": headers}
        return self._ask("POST", below, shape, **how)


def _octets(text: Text) -> bytes:
    if isinstance(text, Mapping):
        text = json.dumps(text, ensure_ascii=False)
    return text.encode() if isinstance(text, str) else text
