"""Fake in-memory coordinator with one workflow, whose actions tests change."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.browser.programs import Programs

WORKFLOW = "6a1f04c2b7d94e10"


def action(name: str, *dependencies: str, kind: str = "command", **more: Any) -> dict[str, Any]:
    """Return the record of a waiting action, as in GET /api/workflows/ID."""
    return {
        "action_id": name,
        "action_type": kind,
        "state": "waiting",
        "dependencies": list(dependencies),
        "after_any": [],
        "job_id": None,
        "error": None,
        "started": None,
        "ended": None,
        "progress": None,
        "items": None,
        "message": "Publish the report?" if kind == "approve" else None,
        **more,
    }


def release() -> list[dict[str, Any]]:
    """Return a small workflow with two models in parallel, an approval, and actions that depend on it."""
    return [
        action("fetch-data"),
        action("verify-range", kind="collatz"),
        action("simulate", "fetch-data", kind="thread"),
        action("train-small", "fetch-data"),
        action("train-large", "fetch-data", "verify-range"),
        action("compare", "train-small", "train-large", "simulate"),
        action("sign-off", "compare", kind="approve"),
        action("publish", "sign-off", kind="publish"),
        action("clean-up", "publish"),
    ]


def sweep(count: int) -> list[dict[str, Any]]:
    """Return a workflow with one action, `count` parallel chains of three actions, and a report after all chains."""
    chains = [
        action(f"{step}-{number:04}", f"{before}-{number:04}" if before else "fetch-data")
        for number in range(count)
        for before, step in (("", "prepare"), ("prepare", "run"), ("run", "score"))
    ]
    return [action("fetch-data"), *chains, action("report", *(f"score-{number:04}" for number in range(count)))]


NIGHTLY = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 1_000_000}}


def schedule(name: str, **more: Any) -> dict[str, Any]:
    """Return a schedule's record as in GET /api/schedules."""
    return {
        "name": name,
        "id": "4f0c7be1",
        "tenant": "default",
        "type": "collatz",
        "every_seconds": None,
        "cron": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "overlap": False,
        "catch_up": "last",
        "state": "active",
        "created": "2026-11-01T00:00:00Z",
        "next_run": "2036-11-23T02:00:00Z",
        "last_run": "2026-11-22T02:00:00Z",
        "last_job_id": "s-4f0c7be1-1795312800",
        "last_outcome": "submitted",
        "submitted": 21,
        "skipped": 0,
        "missed": 1,
        "failed": 0,
        **more,
    }


class Workflows(Programs):
    """State of the fake coordinator with one workflow, which tests change while the page is open."""

    def __init__(self, actions: list[dict[str, Any]], schedules: list[dict[str, Any]] | None = None) -> None:
        super().__init__(1, {})
        self.actions = {each["action_id"]: each for each in actions}
        self.schedules = schedules or []
        self.state, self.ended = "running", None
        #: True if the list contains the workflow.
        self.listed = True
        #: Names of services that the workflow started.
        self.services: list[str] = []
        #: Paths of received POST requests.
        self.posted: list[str] = []

    def move(self, state: str, *names: str, **more: Any) -> None:
        """Set the state of actions, with matching jobs and times."""
        with self.changed:
            for name in names:
                known = self.actions[name]
                known["state"] = state
                if state in ("running", "done", "failed"):
                    known["job_id"] = f"w-{WORKFLOW}-{name}-1"
                    known["started"] = known["started"] or "2026-11-22T10:00:00.000Z"
                if state in ("done", "failed"):
                    known["ended"] = "2026-11-22T10:01:30.000Z"
                known.update(more)
            self.number += 1
            self.changed.notify_all()

    def row(self) -> dict[str, Any]:
        return {
            "workflow_id": WORKFLOW,
            "name": "nightly release",
            "state": self.state,
            "tenant": "default",
            "description": "Train, compare, publish.",
            "waiting_because": None,
            "error": None,
            "attempt": 1,
            "created": "2026-11-22T09:59:58.000Z",
            "ended": self.ended,
            "total": len(self.actions),
            "counts": Counter(each["state"] for each in self.actions.values()),
        }

    def event(self) -> dict[str, Any]:
        return {"type": "workflow", "workflow": WORKFLOW, "state": self.state, "tenant": "default"}

    def answer(self, path: str, query: dict[str, str]) -> tuple[Any, dict[str, str]]:
        if path == "/api/workflows":
            return {"workflows": [self.row()] if self.listed else [], "cursor": None}, {}
        if path == f"/api/workflows/{WORKFLOW}":
            return {**self.row(), "actions": [*self.actions.values()], "services": self.services}, {}
        if path.startswith(f"/api/workflows/{WORKFLOW}/actions/"):
            known = self.actions[path.rsplit("/", 1)[1]]
            detail: dict[str, Any] = {
                "parameters": {"command": ["./step", known["action_id"]]},
                "foreach": None,
                "item_jobs": [],
                "result": None,
            }
            return {**known, **detail}, {}
        if path == "/api/schedules":
            return {"schedules": self.schedules}, {}
        if path.startswith("/api/schedules/"):
            (known,) = (each for each in self.schedules if each["name"] == path.rsplit("/", 1)[1])
            return {**known, "next_runs": ["2036-11-23T02:00:00Z", "2036-11-24T02:00:00Z"], "job": NIGHTLY}, {}
        if path.startswith(f"/api/jobs/w-{WORKFLOW}-"):
            return {**super().job(), "job_id": path.rsplit("/", 1)[1]}, {}
        return super().answer(path, query)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        self.posted.append(path)
        if path == "/api/workflows/validate":
            wrong = [{"line": 4, "column": 5, "action": "train", "field": "dependencies", "detail": "no action fetch"}]
            valid = "fetch]" not in body
            return 200, {
                "valid": valid,
                "name": "two",
                "actions": 2,
                "edges": 1,
                "layers": 2,
                "problems": [] if valid else wrong,
                "notes": [],
            }
        if path.startswith("/api/schedules/"):
            self.schedules[0]["state"] = "paused" if path.endswith("/pause") else "active"
            return 200, self.schedules[0]
        if path.endswith(("/approve", "/reject")):
            self.move("done" if path.endswith("/approve") else "failed", path.split("/")[-2])
        if path.endswith("/cancel"):
            self.state = "cancelling"
        if path.endswith("/retry"):
            self.state = "running"
        return 200, self.row()
