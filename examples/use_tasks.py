"""Estimate pi with tasks: functions that run here or on runners, and whose calls can depend on each other."""

import random

from threads_cluster import Cluster, as_completed

cluster = Cluster()


@cluster.task(retries=1)
def count_hits(seed: int, points: int) -> int:
    """Return how many random points of the unit square are inside the quarter circle."""
    numbers = random.Random(seed)
    return sum(numbers.random() ** 2 + numbers.random() ** 2 < 1 for _ in range(points))


@cluster.task
def estimate_pi(hits: list[int], points: int) -> float:
    return 4 * sum(hits) / (len(hits) * points)


def main() -> None:
    print("one call in this process:", count_hits(0, 100))
    calls = [count_hits.submit(seed, 100_000) for seed in range(20)]
    result = estimate_pi.submit(calls, 100_000)  # Runs when the other calls have ended
    for number, _ in enumerate(as_completed(calls), 1):
        print(f"{number} of {len(calls)} calls have ended")
    print("pi is about", result.result())


if __name__ == "__main__":
    with cluster:
        main()
