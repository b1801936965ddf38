"""Workflows of the cluster, as provided by `Cluster().workflows`.

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

#: Workflow as YAML text, as JSON text, or as a mapping.
Text: TypeAlias = str | bytes | Mapping[str, Any]

#: Final states of a workflow.
TERMINAL = frozenset({"done", "failed", "cancelled"})
#: Additional seconds that validating a large workflow can take.
_LONG = 30.0
_YAML = "application/yaml"


class Workflows(Resource):
    """Workflows that a connection can access."""

    path = "/api/workflows"

    def submit(self, text: Text, *, notify: str | None = None) -> Json:
        """Submit a workflow, and return it without its actions.

        `text` is YAML or JSON, or the same as a dict. Raises ApiError 422 for an invalid workflow, with a list of all
        problems in its `problem`. `notify` is a URL that receives a signed POST when the workflow finishes. It
        overrides the URL in the text.

        Example:
            workflow = cluster.workflows.submit(Path("workflow.yaml").read_text())
            print(cluster.workflows.wait(workflow["workflow_id"])["state"])
        """
        if notify is not None and not (notify.isascii() and notify.isprintable()):
            raise BadArgument("notify: has characters that are invalid in a URL; percent-encode them")
        headers = {} if notify is None else {"Notify": notify}
        return self._send("", answers.Workflow, text, headers)

    def validate(self, text: Text) -> Json:
        """Validate the `text` of a workflow without submitting it. Return its size and its problems.

        The response contains `{valid, name, actions, edges, layers, problems, notes, more}`.

        Example:
            print(cluster.workflows.validate(Path("workflow.yaml").read_text())["problems"])
        """
        return self._send("/validate", answers.Validation, text, {})

    def list(self, limit: int | None = None) -> Iterator[Json]:
        """Yield up to `limit` workflows, newest first. The next page is requested when it is needed.

        Example:
            for workflow in cluster.workflows.list(limit=10):
                print(workflow["name"], workflow["state"])
        """

        def ask(cursor: str | None, size: int) -> Json:
            return self._ask("GET", "", answers.Workflows, cursor=cursor, limit=size)

        return pages(self._cluster.url, ask, "workflows", limit)

    def get(self, workflow: str, *, patience: float | None = None) -> Json:
        """Return a workflow with its actions. Each action follows the actions on which it depends.

        Failing requests are retried for `patience` seconds. The default is the `patience` of the `Cluster`.

        Example:
            print(cluster.workflows.get(workflow_id)["actions"])
        """
        how = {} if patience is None else {"patience": patience}
        return self._ask("GET", f"/{quoted(workflow)}", answers.Course, **how)

    def action(self, workflow: str, action: str) -> Json:
        """Return one action of a workflow with its parameters. An action with `foreach` includes its jobs.

        Example:
            print(cluster.workflows.action(workflow_id, "train")["state"])
        """
        return self._ask("GET", f"/{quoted(workflow)}/actions/{quoted(action)}", answers.ActionDetail)

    def follow(self, workflow: str, timeout: float | None = None) -> Iterator[Json]:
        """Yield a workflow repeatedly until it has finished. Raises TimedOut after `timeout` seconds.

        Example:
            for workflow in cluster.workflows.follow(workflow_id):
                print(workflow["state"], workflow["counts"])
        """

        def read() -> Json:
            return self.get(workflow, patience=self._cluster.wait_patience)

        return polled(read, lambda course: course["state"] in TERMINAL, f"workflow {workflow}", timeout)

    def wait(self, workflow: str, timeout: float | None = None) -> Json:
        """Wait until a workflow has finished in any state, and return it with its actions.

        Raises TimedOut after `timeout` seconds.

        Example:
            print(cluster.workflows.wait(workflow_id, timeout=3600)["state"])
        """
        *_, course = self.follow(workflow, timeout)
        return course

    def cancel(self, workflow: str) -> Json:
        """Cancel a workflow and its unfinished jobs.

        Example:
            cluster.workflows.cancel(workflow_id)
        """
        return self._ask("POST", f"/{quoted(workflow)}/cancel", answers.Workflow)

    def retry(self, workflow: str) -> Json:
        """Retry a failed or cancelled workflow, and return it.

        Finished actions are kept. `notes` lists actions that start from the beginning.

        Example:
            print(cluster.workflows.retry(workflow_id)["notes"])
        """
        return self._ask("POST", f"/{quoted(workflow)}/retry", answers.Retried)

    def approve(self, workflow: str, action: str) -> Json:
        """Approve the action of a `workflow` that waits for the approval of a person.

        Example:
            cluster.workflows.approve(workflow_id, action="deploy")
        """
        return self._ask("POST", f"/{quoted(workflow)}/actions/{quoted(action)}/approve", answers.Workflow)

    def reject(self, workflow: str, action: str) -> Json:
        """Reject the action of a `workflow` that waits for the approval of a person.

        The action fails, and a retry of the workflow asks again.

        Example:
            cluster.workflows.reject(workflow_id, action="deploy")
        """
        return self._ask("POST", f"/{quoted(workflow)}/actions/{quoted(action)}/reject", answers.Workflow)

    def delete(self, workflow: str) -> None:
        """Delete a finished workflow. The cluster keeps its jobs.

        Example:
            cluster.workflows.delete(workflow_id)
        """
        self._ask("DELETE", f"/{quoted(workflow)}", None)

    def _send(self, below: str, shape: Any, text: Text, headers: Mapping[str, str]) -> Json:
        how: Json = {"octets": _octets(text), "kind": _YAML, "extra_seconds": _LONG, "headers": headers}
        return self._ask("POST", below, shape, **how)


def _octets(text: Text) -> bytes:
    if isinstance(text, Mapping):
        text = json.dumps(text, ensure_ascii=False)
    return text.encode() if isinstance(text, str) else text
