"""Tests that each response type is declared once, for the coordinator, OpenAPI and the client's validation."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from typing_extensions import is_typeddict

from tests.unit.cluster_fake import job
from threads_cluster.client import answers as client
from threads_cluster.errors import UnexpectedAnswer
from threads_protocol import answers
from threads_protocol.answers import jobs, telemetry

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    importlib.import_module(f"{answers.__name__}.{each.name}") for each in pkgutil.iter_modules(answers.__path__)
]
DECLARED = [
    each
    for module in MODULES
    for each in vars(module).values()
    if is_typeddict(each) and each.__module__ == module.__name__ and not each.__name__.startswith("_")
]
#: Program that prints the names of a job's declaration in OpenAPI and in the type, and the client's error for a list.
PROGRAM = """
import json, sys, typing
from coordinator import openapi
from threads_cluster.client import answers
from threads_protocol.answers import jobs

def refusal(job):
    try:
        answers.checked(jobs.Jobs, {"jobs": [job], "cursor": None}, "http://cluster.test")
    except Exception as error:
        return str(error)

job = json.loads(sys.argv[1])
described = json.loads(openapi.text())["components"]["schemas"]["Job"]
print(json.dumps({
    "openapi": described["properties"].get("color"), "required": "color" in described["required"],
    "type": "color" in typing.get_type_hints(jobs.Job),
    "refusals": [refusal(job), refusal(job | {"color": 7}), refusal(job | {"color": "red"})],
}))
"""


@pytest.mark.parametrize("declared", DECLARED, ids=lambda declared: f"{declared.__module__}.{declared.__name__}")
def test_an_answer_can_be_checked_and_described(declared: type) -> None:
    assert TypeAdapter(declared).json_schema(mode="serialization")["type"] == "object"


def refusal(shape: Any, answer: Any) -> str:
    with pytest.raises(UnexpectedAnswer) as refused:
        client.checked(shape, answer, "http://cluster.test")
    return str(refused.value)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("done", -1, "done"),
        ("done", 1.5, "done"),
        ("done", "9" * 41, "done"),
        ("state", None, "state"),
        ("created", "2026-01-02T03:04:05", "a timestamp must have a time zone"),
        ("created", "yesterday", "created"),
        ("job_id", "../../etc", "job_id"),
        ("rate", float("nan"), "rate"),
        ("notes", "text", "notes"),
        ("usage", {"workers": {"desk": {}}}, "usage"),
    ],
)
def test_the_client_refuses_what_is_not_declared(field: str, value: Any, complaint: str) -> None:
    assert complaint in refusal(jobs.Job, job("done") | {field: value})


def test_the_client_names_a_field_that_is_missing() -> None:
    incomplete = {name: value for name, value in job("done").items() if name != "queue"}
    assert "jobs.0.queue: field required" in refusal(jobs.Jobs, {"jobs": [incomplete], "cursor": None})


def test_the_client_ignores_fields_and_words_of_a_newer_cluster() -> None:
    newer = job("hibernating") | {"color": "red"}
    newer["usage"] = newer["usage"] | {"color": "red"}
    assert client.checked(jobs.Job, newer, "http://cluster.test") == newer


def test_lists_of_json_are_taken_for_tuples() -> None:
    client.checked(jobs.UnitStates, {"total": 3, "runs": [[0, 3, "waiting"]]}, "http://cluster.test")
    assert "runs.0.1" in refusal(jobs.UnitStates, {"total": 3, "runs": [[0, "3", "waiting"]]})


def test_one_wrong_element_is_enough() -> None:
    """A list of a million invalid elements is rejected at the first one, without an error for each."""
    with pytest.raises(ValueError, match="1 validation error"):
        TypeAdapter(telemetry.Metrics).validate_python({"metrics": [7] * 1000})


def test_a_field_that_is_declared_once_is_everywhere(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "threads_protocol", tmp_path / "threads_protocol")
    declaration = tmp_path / "threads_protocol/answers/jobs.py"
    text = declaration.read_text()
    assert text.count("class Job(Answer):\n") == 1
    declaration.write_text(text.replace("class Job(Answer):\n", "class Job(Answer):\n    color: str\n"))
    command = [sys.executable, "-c", PROGRAM, json.dumps(job("done"))]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"}
    made = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout)
    assert found["openapi"] == {"type": "string", "title": "Color"}
    assert found["required"] and found["type"]
    absent, wrong, right = found["refusals"]
    assert "jobs.0.color: field required" in absent and "jobs.0.color: input should be a valid string" in wrong
    assert right is None
