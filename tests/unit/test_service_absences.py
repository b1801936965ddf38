"""Tests when a leader considers a worker lost: after some checks, and not because the checks failed."""

from __future__ import annotations

from coordinator.services.missing_workers import MISSED_SECONDS, Absences


def test_a_worker_is_missed_after_a_while_and_not_once_it_is_back() -> None:
    now = [100.0]
    absences = Absences(lambda: now[0])
    assert not absences.missed({"a"})
    for _ in range(int(MISSED_SECONDS) - 1):
        now[0] += 1
        assert not absences.missed({"a"})
    now[0] += 1
    assert absences.missed({"a", "b"}) == {"a"}
    assert not absences.missed({"b"})
    now[0] += 1
    assert not absences.missed({"a"}), "it was back meanwhile"


def test_a_leader_that_could_not_look_begins_to_count_anew() -> None:
    now = [100.0]
    absences = Absences(lambda: now[0])
    absences.missed({"a"})
    now[0] += 60
    assert not absences.missed({"a"})
    assert Absences(lambda: now[0]).missed({"a"}) == frozenset()
