"""Workflows from Python: `Cluster().workflows`.

workflow = cluster.workflows.submit(Path("sweep.yaml").read_bytes())
cluster.workflows.wait(workflow["workflow_id"])
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib import parse

from threads_cluster import answers
from threads_cluster.errors import BadArgument, TimedOut

if TYPE_CHECKING:
    from pydantic import BaseModel

    from threads_cluster.connection import Connection

Json: TypeAlias = dict[str, Any]
#: Text of a workflow as YAML or JSON, or the same as a mapping.
Text: TypeAlias = str | bytes | Mapping[str, Any]

#: States of a workflow that has ended, well or not.
TERMINAL = frozenset({"done", "failed", "cancelled"})
#: Seconds between two looks, at least, and over the time that an answer took.
_STEP, _REST = 0.5, 4.0
#: Seconds that validating a large text may take.
_LONG = 30.0
_YAML = "application/yaml"


class Patient(Protocol):
    """Cluster, as far as workflows use it."""

    url: str
    patience: float
    wait_patience: float


class Workflows:
    """Workflows of one connection."""

    def __init__(self, connection: Connection, cluster: Patient) -> None:
        self._connection = connection
        self._cluster = cluster

    def submit(self, text: Text, *, notify: str | None = None) -> Json:
        """Submit a workflow and return it without its actions. ApiError 422: its `problem` has all problems.

        `notify`: a URL that is sent a signed POST when it has ended; it overrules that of the text.
        """
        if notify is not None and not (notify.isascii() and notify.isprintable()):
            raise BadArgument("notify: has characters that no URL has; write them with %")
        headers = {} if notify is None else {"Notify": notify}
        return self._ask("POST", "", answers.Workflow, text=_octets(text), headers=headers)

    def validate(self, text: Text) -> Json:
        """`{valid, name, actions, edges, layers, problems, notes, more}`; submits nothing."""
        return self._ask("POST", "/validate", answers.Validation, text=_octets(text))

    def list(self, limit: int | None = None) -> Iterator[Json]:
        """Workflows, newest first, page by page as they are read."""
        left, cursor = limit, None
        while left is None or left > 0:
            size = 100 if left is None else min(left, 100)
            page = self._ask("GET", "", answers.WorkflowPage, cursor=cursor, limit=size)
            yield from page["workflows"][:size]
            left = None if left is None else left - len(page["workflows"])
            cursor = page.get("cursor")
            if not cursor or not page["workflows"]:
                return

    def get(self, workflow: str, *, patience: float | None = None) -> Json:
        """The workflow with its actions, each after those that it waits for."""
        return self._ask("GET", f"/{_quoted(workflow)}", answers.Course, patience=patience)

    def action(self, workflow: str, action: str) -> Json:
        """One action with its parameters, and of a foreach its jobs."""
        return self._ask("GET", f"/{_quoted(workflow)}/actions/{_quoted(action)}", answers.Action)

    def follow(self, workflow: str, timeout: float | None = None) -> Iterator[Json]:
        """The workflow as it is, again and again until it has ended; TimedOut after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            began = time.monotonic()
            course = self.get(workflow, patience=self._cluster.wait_patience)
            yield course
            if course["state"] in TERMINAL:
                return
            pause = max(_STEP, _REST * (time.monotonic() - began))
            if until is not None and time.monotonic() + pause > until:
                raise TimedOut(f"workflow {workflow} is {course['state']} after {timeout:g} seconds; it goes on")
            time.sleep(pause)

    def wait(self, workflow: str, timeout: float | None = None) -> Json:
        """The workflow with its actions when it has ended, well or not. Errors as `follow`."""
        *_, course = self.follow(workflow, timeout)
        return course

    def cancel(self, workflow: str) -> Json:
        """Cancel a workflow, and its jobs that have not ended."""
        return self._ask("POST", f"/{_quoted(workflow)}/cancel", answers.Workflow)

    def retry(self, workflow: str) -> Json:
        """Let a workflow that failed or was cancelled go on; what is done stays. `notes`: what begins anew."""
        return self._ask("POST", f"/{_quoted(workflow)}/retry", answers.Retried)

    def approve(self, workflow: str, action: str) -> Json:
        """Let an action that waits for a person be done."""
        return self._ask("POST", f"/{_quoted(workflow)}/actions/{_quoted(action)}/approve", answers.Workflow)

    def delete(self, workflow: str) -> None:
        """Forget a workflow that has ended; its jobs stay."""
        self._ask("DELETE", f"/{_quoted(workflow)}", None)

    def _ask(
        self, method: str, path: str, shape: type[BaseModel] | None, *, text: bytes | None = None,
        headers: Mapping[str, str] | None = None, patience: float | None = None, **query: Any,
    ) -> Json:  # fmt: skip
        how: Json = {} if text is None else {
            "octets": text, "kind": _YAML, "extra_seconds": _LONG, "headers": headers,
        }  # fmt: skip
        patience = self._cluster.patience if patience is None else patience
        answer: Json = self._connection.ask(method, f"/api/workflows{path}", patience=patience, **how, **query)
        return answer if shape is None else answers.checked(shape, answer, self._cluster.url)


def _octets(text: Text) -> bytes:
    if isinstance(text, Mapping):
        text = json.dumps(text, ensure_ascii=False)
    return text.encode() if isinstance(text, str) else text


def _quoted(name: str) -> str:
    """A name as one step of a path. BadArgument for those that would name another path."""
    if name in ("", ".", ".."):
        raise BadArgument(f"no id can be {name!r}" if name else "the id is empty")
    return parse.quote(name, safe="", errors="surrogateescape")
