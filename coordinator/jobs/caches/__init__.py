"""Caches of workers, units and owners: each keeps recent reads of Redis for a bounded time."""
