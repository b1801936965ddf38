"""`python -m jobs.store.reindex`, with REDIS_URL: rebuild the indexes in Redis from the jobs."""

from __future__ import annotations

from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection


def main() -> None:
    """Rebuild all indexes and say of how many jobs."""
    count = Store(connection.connect(Settings().redis_url)).repairs.reindex()
    print(f"The indexes of {count} jobs were rebuilt, and jobs are accepted again.")


if __name__ == "__main__":
    main()
