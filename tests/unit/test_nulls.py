"""Tests that null in an optional field of a request counts as absent, as generated clients send it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from coordinator import app
from coordinator.jobs import submissions
from coordinator.jobs.submissions import Submission
from coordinator.services.creation import NewService
from coordinator.tenants.routes import Shares
from jobs import errors
from jobs.kinds import registry
from jobs.settings import Settings


def subclasses(of: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


def request_bodies() -> dict[str, type[BaseModel]]:
    """Return the models of all request bodies in the OpenAPI description."""
    described = app.create(Settings()).openapi()["paths"]
    names = set(re.findall(r"'\$ref': '#/components/schemas/(\w+)'", str(_bodies(described))))
    packages = ("coordinator.", "jobs.worker.")
    return {
        model.__name__: model
        for model in subclasses(BaseModel)
        if model.__name__ in names and model.__module__.startswith(packages)
    }


def _bodies(described: dict[str, Any]) -> list[Any]:
    return [route.get("requestBody") for verbs in described.values() for route in verbs.values()]


def test_every_request_body_accepts_null_in_each_optional_field() -> None:
    models = request_bodies()
    assert len(models) > 50
    for model in models.values():
        optional = {name: None for name, field in model.model_fields.items() if not field.is_required()}
        if len(optional) == len(model.model_fields):
            assert submissions.validate(model, optional) == model()
        else:
            with pytest.raises(errors.InvalidRequest) as error:
                submissions.validate(model, optional)
            assert error.value.field not in optional and error.value.detail == f"{error.value.field}: is required"


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("collatz", {"start_number": 1, "number_count": 10}),
        ("command", {"command": ["true"]}),
        ("thread", {}),
    ],
)
def test_null_parameters_of_a_kind_have_their_defaults(kind: str, given: dict[str, Any]) -> None:
    model = registry.definition(kind).parameters
    nulls = {name: None for name, field in model.model_fields.items() if name not in given and not field.is_required()}
    assert submissions.validate(model, given | nulls) == model.model_validate(given)


def test_nested_fields_accept_null() -> None:
    body = {"command": ["true"], "retries": {"max": 2, "factor": None}, "requirements": {"gpus": 1, "labels": None}}
    given = submissions.validate(registry.definition("command").parameters, body).model_dump()
    assert given["retries"]["factor"] == 2.0 and given["retries"]["max"] == 2
    assert given["requirements"]["gpus"] == 1 and given["requirements"]["labels"] == []
    service = {"name": "chat", "engine": "http", "autoscale": {"min": None, "max": 3}}
    assert submissions.validate(NewService, service).model_dump()["autoscale"]["min"] == 1
    tree = {"spawn": {"distribution": "poisson", "mean": 2, "shape": None}}
    assert (
        submissions.validate(registry.definition("thread").parameters, tree).model_dump()["spawn"]["shape"]
        == "constant"
    )


@pytest.mark.parametrize(
    ("model", "body", "field"),
    [
        (Submission, {"type": None}, "type"),
        (Submission, {"type": "collatz", "color": None}, "color"),
        (Submission, {"type": "collatz", "after": [None]}, "after.0"),
        (Submission, {"type": "collatz", "priority": None, "max_running": 0}, "max_running"),
        (Shares, {"weight": None, "max_units": {"collatz": None}}, "max_units.collatz"),
    ],
)
def test_other_nulls_are_errors(model: type[BaseModel], body: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.InvalidRequest) as error:
        submissions.validate(model, body)
    assert error.value.field == field


def test_a_null_that_has_a_meaning_is_kept() -> None:
    shares = submissions.validate(Shares, {"weight": None, "requires": None, "max_lanes": 5})
    assert (shares.weight, shares.requires, shares.max_lanes) == (1, None, 5)
