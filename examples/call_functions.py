"""Call a function of this script on the cluster, with the interface of concurrent.futures."""

from concurrent.futures import Future, as_completed

from threads_cluster import Cluster


def count_primes(first: int, last: int) -> int:
    """Return the number of primes in a range."""
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(max(first, 2), last))


def main() -> None:
    with Cluster() as cluster, cluster.executor(retries=1) as executor:
        futures: dict[Future[int], int] = {
            executor.submit(count_primes, n, n + 1000): n for n in range(0, 20_000, 1000)
        }
        for future in as_completed(futures):
            print(futures[future], future.result())


if __name__ == "__main__":
    main()
