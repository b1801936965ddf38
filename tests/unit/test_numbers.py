"""Tests that integers are transferred exactly or rejected."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ValidationError

from jobs.encoding.numbers import ExactInt
from threads_protocol.numbers import exact, short


class Sample(BaseModel):
    n: Annotated[int, ExactInt(1, 2**96)]


@pytest.mark.parametrize("value", [1, "1", 2**53, str(2**96), 2**96, "007"])
def test_numbers_and_decimal_strings_are_read_exactly(value: Any) -> None:
    assert Sample.model_validate({"n": value}).n == int(value)


@pytest.mark.parametrize("value", [True, False, 1.0, 1.5, "1.5", "1e3", "0x10", "", " 1", "+1", "\uff11", None, [], {}])
def test_everything_else_is_refused_saying_what_it_got(value: Any) -> None:
    with pytest.raises(ValidationError, match="must be an integer or its decimal string; got"):
        Sample.model_validate({"n": value})


@pytest.mark.parametrize("value", [0, -1, 2**96 + 1, 10**400, "0", "-5", "9" * 5000])
def test_the_bounds_stand_in_the_message(value: Any) -> None:
    with pytest.raises(ValidationError, match=rf"must be in 1\.\.{2**96}; got"):
        Sample.model_validate({"n": value})


@pytest.mark.parametrize("value", [0, 2**53 - 1, 2**53, -(2**53), 10**30])
def test_what_passes_2_to_the_53_travels_as_a_string(value: int) -> None:
    written = json.loads(json.dumps(exact(value)), parse_int=lambda text: int(float(text)))
    assert int(written) == value


def test_long_values_are_cut_in_messages() -> None:
    assert len(short("x" * 10_000)) < 60
    assert short(10**20_000) == f"an integer of {(10**20_000).bit_length()} bits"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "[]"),
        ([1, "a", None], "[1, 'a', None]"),
        ({"a": [1.5]}, "{'a': [1.5]}"),
        ("x", "'x'"),
        (True, "True"),
        ([[0] * 3] * 50, "[[0, 0, 0], [0, 0, 0], [0, 0… (list of 50)"),
    ],
)
def test_values_are_shown_as_python_writes_them(value: object, text: str) -> None:
    assert short(value) == text


def test_what_is_cut_off_costs_nothing() -> None:
    class Loud:
        def __repr__(self) -> str:
            raise AssertionError("was written")

    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    huge: list[object] = [[[0] * 20, Loud()], {str(number): Loud() for number in range(3)}, deep, "x" * 10**8]
    for value in (huge, {"a": huge}, deep, ["x" * 10**8], {"k" * 10**8: 1}, {"a": 10**20_000}):
        assert len(short(value)) < 60


@pytest.mark.parametrize("value", ["9" * 100_000, "-" + "9" * 100_000, "0" * 50_000 + "9" * 50_000])
def test_digits_that_cannot_be_within_the_bounds_are_not_read(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.encoding.numbers.MAX_DIGITS", len(value))
    before = time.process_time()
    for _ in range(50):
        with pytest.raises(ValidationError, match="must be in"):
            Sample.model_validate({"n": value})
    assert time.process_time() - before < 0.5, "one reading of them takes 30 ms and more"
    assert Sample.model_validate({"n": "0" * 99_000 + "7"}).n == 7
