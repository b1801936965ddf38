"""Stored bytes of tenants that have a cap on them: counted again, job by job.

Each function that writes, finishes or purges a job notes its size and changes the sum of the tenant in the same step.
Both are exact without this. It counts what was there before a tenant had the cap, also where the caller died between
setting the cap and counting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from jobs.store import keys, skipped
from jobs.store.server.functions import Part
from jobs.store.tenancy import caps

#: Jobs counted by one script.
_JOBS_A_CALL = 500


class StoredBytes(Part):
    """Counts again what is stored under tenants' names."""

    def recount(self) -> list[str]:
        """Count all jobs of the tenants that have the cap, and return these tenants. Scans all jobs if there are any.

        May run beside everything else, and be broken off at any time: each script leaves sizes and sum in agreement.
        """
        tenants = self._capped()
        for tenant in tenants:
            self._functions.run("recount", tenant)
            for ids in self._weighed(tenant):
                self._functions.run("recount", tenant, *ids)
        for ids in self._jobs() if tenants else ():
            self._functions.run("recount", "", *ids)
        return tenants

    def _capped(self) -> list[str]:
        [shares] = skipped.replies(self._pipe().hgetall(keys.SHARES))
        suffix, capped = keys.caps("").encode(), caps.STORED_BYTES.encode()
        return [
            name.removesuffix(suffix).decode()
            for name, stored in (shares or {}).items()
            if name.endswith(suffix) and capped in stored
        ]

    def _weighed(self, tenant: str) -> Iterator[list[bytes]]:
        """Yield jobs that count for the tenant, and may be gone."""
        return _pages(job for job, _ in self._client.hscan_iter(keys.stored(tenant), count=_JOBS_A_CALL))

    def _jobs(self) -> Iterator[list[bytes]]:
        return _pages(job for job, _ in self._client.zscan_iter(keys.JOBS, count=_JOBS_A_CALL))


def _pages(ids: Iterator[object]) -> Iterator[list[bytes]]:
    page: list[bytes] = []
    for job in ids:
        page.append(cast(bytes, job))
        if len(page) == _JOBS_A_CALL:
            yield page
            page = []
    if page:
        yield page
