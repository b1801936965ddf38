"""Recount of stored bytes, job by job, for tenants with a limit on them.

Functions that write, finish or purge a job also update its size and its tenant's sum, so both are exact without a
recount. The recount covers data that was stored before the tenant got the cap, even if a caller died between setting
the cap and counting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part
from jobs.store.tenancy import caps

#: Number of jobs that one call of the Redis function counts.
_JOBS_A_CALL = 500


class StoredBytes(Part):
    """Recount of the bytes that tenants have stored."""

    def recount(self) -> list[str]:
        """Recount the stored bytes of all tenants with a limit on stored bytes. Return the names of the tenants.

        The recount can run at any time and can be interrupted: each call leaves sizes and sum consistent.
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
        [shares] = unreadable_entries.replies(self._pipe().hgetall(keys.SHARES))
        suffix, capped = keys.caps("").encode(), caps.STORED_BYTES.encode()
        return [
            name.removesuffix(suffix).decode()
            for name, stored in (shares or {}).items()
            if name.endswith(suffix) and capped in stored
        ]

    def _weighed(self, tenant: str) -> Iterator[list[bytes]]:
        """Yield pages of the jobs whose size counts for a tenant, including deleted jobs."""
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
