"""Tests the conversion of Redis hashes to dataclasses."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from jobs.store.server.records import number, record, texts


@dataclass(frozen=True, kw_only=True)
class Example:
    name: str
    count: int
    ready: bool
    zone: str = "UTC"
    sizes: tuple[int, ...] = ()


def test_fields_are_read_by_their_types() -> None:
    stored = texts(
        [b"name", b"a\xff", b"count", b"12", b"ready", b"1", b"zone", b"CET", b"other", b"x", b"sizes", b"3"]
    )
    assert record(Example, stored) == Example(name="a\ufffd", count=12, ready=True, zone="CET")


def test_a_field_that_is_not_stored_has_its_default_or_is_empty() -> None:
    assert record(Example, {}) == Example(name="", count=0, ready=False)


def test_a_text_in_place_of_a_number_makes_the_record_unreadable() -> None:
    for text in ("many", "-1", "1.5", "²"):
        with pytest.raises(ValueError, match=r"number|invalid literal"):
            record(Example, {"count": text})
    assert record(Example, {"count": "", "ready": "yes"}) == Example(name="", count=0, ready=False)
    assert [number(text) for text in ("", "-1", "7")] == [0, 0, 7]


def test_given_fields_win_over_stored_ones() -> None:
    assert record(Example, {"name": "stored", "count": "1"}, name="given", sizes=(2,)) == Example(
        name="given", count=1, ready=False, sizes=(2,)
    )
