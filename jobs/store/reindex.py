"""Command that rebuilds the indexes in Redis from the jobs: `python -m jobs.store.reindex`, with REDIS_URL set."""

from __future__ import annotations

import sys

from jobs.invalid_settings import InvalidSettings
from jobs.network import redis_address
from jobs.settings import INVALID, load
from jobs.store import Store
from jobs.store.server import connection


def main() -> int:
    """Rebuild all indexes and print the number of jobs. Return the exit code."""
    try:
        count = Store(connection.connect(load().redis_url)).repairs.reindex()
    except InvalidSettings as error:
        return _fail(str(error), INVALID)
    except redis_address.UnusableAddress as error:
        return _fail(str(error))
    except connection.Denied as error:
        return _fail(f"the user in REDIS_URL cannot rebuild the indexes: {error}. Use the user coordinator.")
    except connection.Unreachable as error:
        return _fail(f"{connection.reason(error)}. Set REDIS_URL to the Redis server of the cluster.")
    print(f"Rebuilt the indexes of {count} jobs. Redis accepts jobs again.")
    return 0


def _fail(why: str, code: int = 1) -> int:
    print(f"error: {why}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
