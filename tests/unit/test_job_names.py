"""Tests names and tags of jobs: validation, responses, the client and the commands."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.access.principal import Principal, Scope
from coordinator.jobs import scheduler, serializers, submissions
from jobs import errors
from jobs.models import QueuePosition
from jobs.settings import Settings
from jobs.store.work.jobs import NewJob
from threads_cluster import errors as client_errors
from threads_cluster.client.api import submission

BODY = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 1000}}
ROW = {
    "state": "done",
    "done": "1",
    "total": "1",
    "holders": "0",
    "kind": "command",
    "queue": "runner.normal",
    "tenant": "default",
    "cursor": "1",
    "version": "1",
    "priority": "normal",
    "device": "runner",
    "notes": "[]",
    "parameters": '{"command": ["python3", "-c", "import secret_code"]}',
    "created": "1000",
}


def accept(**more: Any) -> NewJob:
    asked = submissions.parse_submission(BODY | more)
    principal = Principal(tenant="default", token="t", scopes=frozenset(Scope))
    return submissions.accept(asked, principal, scheduler.Fleet(), Settings()).job


def serialize(**more: str) -> dict[str, Any]:
    return dict(serializers.serialize_job("j", ROW | more, QueuePosition(), scheduler.Fleet(), 2.0))


def test_a_job_keeps_its_name_and_each_tag_once() -> None:
    job = accept(name="Nightly sums", tags=["nightly", "dataset=v2", "nightly"])
    assert (job.name, job.tags) == ("Nightly sums", ("nightly", "dataset=v2"))


def test_the_name_is_the_title_of_the_job() -> None:
    row = serialize(name="Nightly sums", tags='["nightly"]')
    assert (row["title"], row["name"], row["tags"]) == ("Nightly sums", "Nightly sums", ["nightly"])


def test_a_job_without_a_name_has_a_title_without_source_code() -> None:
    row = serialize()
    assert row["title"] == "python3" and "name" not in row and "tags" not in row


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "x" * 81}, "name: string should have at most 80 characters"),
        ({"name": ""}, "name: string should have at least 1 character"),
        ({"name": "two\nlines"}, "name: must be one printable line"),
        ({"name": " padded"}, "name: must be one printable line"),
        ({"tags": ["a b"]}, "tags.0: must be 1 to 64 letters, digits or"),
        ({"tags": ["t" * 65]}, "tags.0: must be 1 to 64 letters"),
        ({"tags": [f"t{number}" for number in range(17)]}, "tags: list should have at most 16 items"),
        ({"tags": "nightly"}, "tags: input should be a valid list"),
    ],
)
def test_names_and_tags_beyond_their_limits_are_rejected(given: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="^" + words):
        submissions.parse_submission(BODY | given)


def test_idempotency_keys_of_earlier_versions_stay_valid() -> None:
    assert accept().digest == accept(name=None, tags=[]).digest
    assert len({accept().digest, accept(name="a").digest, accept(tags=["a"]).digest}) == 3


def test_the_client_sends_names_and_tags() -> None:
    body = submission("sums", None, idempotency_key="k", name="Sums", tags=("a", "b"))
    assert (body["name"], body["tags"]) == ("Sums", ["a", "b"])
    with pytest.raises(client_errors.BadArgument, match="must be a list of tags"):
        submission("sums", None, idempotency_key="k", tags="a")
