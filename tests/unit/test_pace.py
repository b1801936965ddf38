"""Tests that lease sizes adapt to short leases too, and that their growth is bounded."""

from __future__ import annotations

from jobs.worker.lease_size import Pace


def leases_until(guess: float, true_rate: float, within: float) -> int:
    """Return the number of leases after which the next one is within a factor of its target duration."""
    lane, count = Pace(guess), 0
    while abs(lane.want() / true_rate - 1.0) > within and count < 1000:
        units = lane.want()
        lane.learn(units, units / true_rate)
        count += 1
    return count


def test_the_first_lease_aims_at_a_fifth_of_a_second() -> None:
    assert Pace(1000.0).want() == 200


def test_a_guess_a_hundred_times_too_low_is_mended_in_three_leases() -> None:
    assert leases_until(10.0, 1000.0, 0.05) <= 3


def test_a_guess_a_hundred_times_too_high_is_mended_quickly() -> None:
    assert leases_until(1e8, 1e6, 0.05) <= 8


def test_a_rate_grows_at_most_eightfold_a_lease() -> None:
    lane = Pace(10.0)
    lane.learn(10, 1e-9)
    assert lane.rate == 80.0


def test_a_lease_is_never_empty() -> None:
    assert Pace(1e-6).want() == 1
    assert Pace(1e-6).least() == 1
