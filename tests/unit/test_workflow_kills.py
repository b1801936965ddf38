"""Tests that the workflow of the kill campaign is valid, and that the campaign detects differences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from coordinator.workflows.documents import validation
from tests.integration import workflow_kills
from tests.integration.workflow_kills import Campaign, Counts, Outcome

OUTCOME = Outcome(
    states={"a": "done"}, errors={}, jobs={"a": ("done", "1", "1")}, published="f" * 64, counts={"done": 1}
)


def test_its_workflow_has_all_that_workflows_have(tmp_path: Path) -> None:
    whole = validation.validate(workflow_kills.text(tmp_path).encode()).document
    actions = whole.actions.values()
    assert {action.type for action in actions} == {"command", "approve", "artifact_publish"}
    assert any(action.foreach for action in actions) and any(action.after_any for action in actions)
    assert any(action.late for action in actions) and not all(action.late for action in actions)


def test_each_difference_is_a_finding(tmp_path: Path) -> None:
    live: Any = SimpleNamespace()
    tally = Counts()
    campaign = Campaign(live, tmp_path, tally)
    campaign.compare("same", OUTCOME, OUTCOME)
    assert tally.findings == []
    others: list[dict[str, Any]] = [
        {"states": {"a": "failed"}},
        {"errors": {"a": "exit code 3"}},
        {"jobs": {}},
        {"published": "0" * 64},
        {"counts": {"done": 2}},
    ]
    for other in others:
        campaign.compare("other", replace(OUTCOME, **other), OUTCOME)
    assert len(tally.findings) == len(others)
