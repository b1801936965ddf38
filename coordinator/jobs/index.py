"""Index of all stored jobs in memory, which answers searches without load on Redis.

A submission writes nothing for the index. Every few seconds and before each search, the index reads only the jobs that
were added since its last read, so each coordinator can rebuild it from Redis at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from coordinator import decoding
from coordinator.jobs import titles
from jobs.kinds import registry
from jobs.store.server.connection import Unreadable
from jobs.store.work.job_reads import JobReads
from threads_protocol.states import JobState

#: Fields of a job that never change and by which jobs are found.
_FIELDS = ("tenant", "kind", "created", "name", "tags")
#: Seconds between two calls that prepare the index for searches.
PREPARE_SECONDS = 10.0
#: Number of jobs that are read at once.
_BATCH = 1000


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Conditions that all jobs of a list meet."""

    #: States, of which the job has one. Empty for any state.
    states: frozenset[str] = frozenset()
    kind: str | None = None
    #: Tags that the job has, in any case. It can have more.
    tags: frozenset[str] = frozenset()
    #: Words that the job's title, kind or tags contain, or with which its ID begins.
    words: tuple[str, ...] = ()
    #: Tenant whose jobs are listed, or None for all tenants.
    tenant: str | None = None
    #: Only tenant that the reader can see, or None if the reader can see all tenants.
    visible_to: str | None = None
    #: Earliest time of submission, and the time before which it was, in milliseconds since 1970.
    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(slots=True)
class Entry:
    """A stored job."""

    number: int
    job_id: str
    tenant: str
    kind: str
    created_ms: int
    name: str
    #: Tags in lower case.
    tags: tuple[str, ...]
    is_listed: bool
    #: Title, kind and tags in lower case; None until the first search for words.
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """Jobs that match a filter, newest first, and the number of jobs that the reader can list."""

    entries: Sequence[Entry]
    total: int


def is_listed(kind: str) -> bool:
    """Return True if general job lists include jobs of this kind. The replicas of services are not listed."""
    return kind not in registry.names() or not registry.definition(kind).is_for_leader


class JobIndex:
    """Finds jobs by their properties. Thread-safe."""

    def __init__(self, job_reads: JobReads) -> None:
        self._reads = job_reads
        self._lock = threading.Lock()
        #: Entries of all stored jobs by ID. The entry of an unreadable job is None.
        self._known: dict[str, Entry | None] = {}
        #: Readable entries, newest first.
        self._newest_first: list[Entry] = []
        self._last = 0

    def prepare(self) -> float:
        """Read the jobs that were added, and all titles, so that a search finds them in memory.

        Return the seconds until the next call.
        """
        with self._lock:
            self._refresh()
            self._add_texts(self._newest_first)
        return PREPARE_SECONDS

    def find(self, wanted: Filter) -> Found:
        """Return the jobs that match a filter."""
        wanted = replace(wanted, tags=frozenset(tag.lower() for tag in wanted.tags))
        with self._lock:
            self._refresh()
            entries = [
                entry
                for entry in self._newest_first
                if (entry.is_listed or entry.kind == wanted.kind)
                and (wanted.visible_to is None or entry.tenant == wanted.visible_to)
            ]
            total = len(entries)
            entries = self._select_states([entry for entry in entries if _matches(entry, wanted)], wanted.states)
            if wanted.words:
                self._add_texts(entries)
                words = [word.lower() for word in wanted.words]
                entries = [entry for entry in entries if _has_words(entry, words)]
        return Found(entries=entries, total=total)

    def counts(self, tenant: str | None) -> dict[str, int]:
        """Count the listed jobs by state, of one tenant or of all tenants."""
        with self._lock:
            self._refresh()
            entries = self._newest_first
            own = {entry.job_id for entry in entries if entry.is_listed and tenant in (None, entry.tenant)}
            common, others = self._read_states()
        counts = {state: len(own & ids) for state, ids in others.items()}
        return {state.value: counts.get(state, 0) for state in JobState} | {common: len(own) - sum(counts.values())}

    def _select_states(self, entries: list[Entry], states: frozenset[str]) -> list[Entry]:
        if not states:
            return entries
        common, others = self._read_states()
        if common in states:
            excluded = set[str]().union(*(ids for state, ids in others.items() if state not in states))
            return [entry for entry in entries if entry.job_id not in excluded]
        included = set[str]().union(*(ids for state, ids in others.items() if state in states))
        return [entry for entry in entries if entry.job_id in included]

    def _read_states(self) -> tuple[str, dict[str, set[str]]]:
        """Return the state of most jobs, and the jobs in each other state.

        All other jobs of the index are in the most frequent state, often `done`, so its many jobs are not read.
        """
        counts = self._reads.counts()
        common = max(counts, key=lambda state: counts[state])
        return common, self._reads.in_states(state for state in counts if state != common)

    def _refresh(self) -> None:
        """Read the jobs that were added, and forget the jobs that were deleted."""
        added, newest, count = self._reads.added_since(self._last)
        self._add(added)
        if count != len(self._known) or (newest is not None and newest not in self._known):
            stored = self._reads.all_ids()
            self._remove(self._known.keys() - stored)
            self._add(self._reads.numbers([job_id for job_id in stored if job_id not in self._known]))

    def _remove(self, deleted: Set[str]) -> None:
        for job_id in deleted:
            del self._known[job_id]
        self._newest_first = [entry for entry in self._newest_first if entry.job_id not in deleted]

    def _add(self, numbered: Sequence[tuple[str, int]]) -> None:
        is_newer = all(number > self._last and job_id not in self._known for job_id, number in numbered)
        for batch in _batches(numbered):
            stored = dict(self._reads.fields([job_id for job_id, _ in batch], _FIELDS))
            for job_id, number in batch:
                entry = _parse(number, job_id, stored.get(job_id))
                self._known[job_id] = entry
                self._last = max(self._last, number)
        if is_newer:
            entries = (self._known[job_id] for job_id, _ in reversed(numbered))
            self._newest_first[:0] = [entry for entry in entries if entry]
        else:
            known = (entry for entry in self._known.values() if entry)
            self._newest_first = sorted(known, key=attrgetter("number"), reverse=True)

    def _add_texts(self, entries: Iterable[Entry]) -> None:
        """Set the texts of entries. Only the titles of jobs without a name need the parameters."""
        missing = [entry for entry in entries if entry.text is None]
        for batch in _batches(missing):
            unnamed = [entry.job_id for entry in batch if not entry.name]
            stored = dict(self._reads.fields(unnamed, ("parameters",)))
            for entry in batch:
                title = entry.name or _title(entry.kind, stored.get(entry.job_id, {}).get("parameters"))
                entry.text = "\n".join((title, entry.kind, *entry.tags)).lower()


def _batches(several: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(several), _BATCH):
        yield several[first : first + _BATCH]


def _parse(number: int, job_id: str, stored: Mapping[str, bytes | None] | None) -> Entry | None:
    """Return the entry of a job, or None if it is unreadable."""
    try:
        tenant, kind, created, name, tags = (
            None if text is None else text.decode() for text in (stored or {}).values()
        )
        if not number or tenant is None or kind is None:
            return None
        labels = tuple(str(tag).lower() for tag in decoding.parse_json(tags)) if tags else ()
        return Entry(number, job_id, tenant, kind, int(created or 0), name or "", labels, is_listed(kind))
    except Unreadable:
        return None


def _title(kind: str, parameters: bytes | None) -> str:
    try:
        return titles.title(kind, decoding.parse_json(parameters or b"{}"))
    except Unreadable:
        return ""


def _matches(entry: Entry, wanted: Filter) -> bool:
    return (
        (wanted.kind is None or entry.kind == wanted.kind)
        and (wanted.tenant is None or entry.tenant == wanted.tenant)
        and (not wanted.tags or wanted.tags.issubset(entry.tags))
        and (wanted.since_ms is None or entry.created_ms >= wanted.since_ms)
        and (wanted.until_ms is None or entry.created_ms < wanted.until_ms)
    )


def _has_words(entry: Entry, words: Sequence[str]) -> bool:
    text, job_id = entry.text or "", entry.job_id.lower()
    return all(word in text or job_id.startswith(word) for word in words)
