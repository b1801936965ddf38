"""Tests that touching ranges are joined, in any order and of any size."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from jobs import marks
from jobs.models import Mark, MarkKind

KIND = MarkKind(summary="Numbers seen.", origin=1, join=lambda lower, upper: sorted({*lower, *upper}))
BASE = 2**90

ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), max_size=20)


def stored(found: list[tuple[int, int]]) -> dict[str, str]:
    return marks.payloads_by_range(
        Mark(name="seen", lo=BASE + lo, hi=BASE + lo + size, payload=list(range(lo, lo + size))) for lo, size in found
    )


@given(ranges)
def test_joined_ranges_cover_the_same_numbers_and_touch_nowhere(found: list[tuple[int, int]]) -> None:
    joined = marks.merge_marks(marks.parse_marks("seen", stored(found)), KIND)
    covered = {n for mark in joined for n in range(mark.lo - BASE, mark.hi - BASE)}
    assert covered == {n for lo, size in found for n in range(lo, lo + size)}
    assert all(left.hi < right.lo for left, right in pairwise(joined))
    assert all(mark.payload == list(range(mark.lo - BASE, mark.hi - BASE)) for mark in joined)


@given(ranges)
def test_joining_twice_changes_nothing(found: list[tuple[int, int]]) -> None:
    once = marks.merge_marks(marks.parse_marks("seen", stored(found)), KIND)
    assert marks.merge_marks(marks.parse_marks("seen", marks.payloads_by_range(once)), KIND) == once


def test_the_mark_reaches_from_its_origin_only() -> None:
    rows = [Mark(name="seen", lo=1, hi=10), Mark(name="seen", lo=20, hi=30)]
    assert marks.find_proven_range(rows, KIND) == rows[0]
    assert marks.find_proven_range(rows[1:], KIND) is None
