"""What the state machine and a close reading found wrong, one test each; none may come back."""

from __future__ import annotations

import pytest

from tests.contract.lease_invariants import check
from tests.contract.lease_model import LONG, Bench, encode, total_of


@pytest.fixture
def bench(redis_url: str) -> Bench:
    return Bench(redis_url)


@pytest.mark.parametrize("total", [2**53 - 1, 2**53])
def test_a_job_near_2_to_the_53_is_counted_exactly(bench: Bench, total: int) -> None:
    """COMMIT added the upper end before it took the lower one away, which rounds: done never reached total."""
    job = bench.submit(total)
    bench.next("w", lanes=2)
    bench.serve(job, "w")
    bench.finish(job)
    assert bench.job(job).result == total_of(0, total)
    check(bench, bench.look())


def test_folding_no_parts_is_refused(bench: Bench) -> None:
    """It would leave an accumulator beside a result, and grow the version of a job that nobody works on."""
    job = bench.submit()
    bench.work()
    assert not bench.book.fold(job, 1, 0, encode(total_of(0, 10)))
    assert bench.job(job).accumulator is None
