"""Command that rebuilds the indexes in Redis from the jobs: `python -m jobs.store.reindex`, with REDIS_URL set."""

from __future__ import annotations

from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection


def main() -> None:
    """Rebuild all indexes and print the number of jobs."""
    count = Store(connection.connect(Settings().redis_url)).repairs.reindex()
    print(f"Rebuilt the indexes of {count} jobs. Redis accepts jobs again.")


if __name__ == "__main__":
    main()
