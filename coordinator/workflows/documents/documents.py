"""Cache of recently read workflow documents. Parsing a large document takes half a second."""

from __future__ import annotations

import threading
from collections import OrderedDict

from coordinator.workflows.documents import document
from coordinator.workflows.documents.document import Document
from jobs.store.workflows import StoredWorkflow, Workflows

#: Maximum total size in bytes of the cached documents' JSON. The last document stays cached regardless of its size.
_MAX_BYTES = 8 << 20


class Documents:
    """Cache of the immutable documents of one store. It is thread-safe and reads one document at a time."""

    def __init__(self, store: Workflows) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, int], tuple[Document, int]] = OrderedDict()
        self._changing = threading.Lock()
        self._reading = threading.Lock()

    def get(self, stored: StoredWorkflow) -> Document | None:
        """Return the document of a workflow, or None if the store does not have it."""
        name = (stored.id, stored.created)  # the store can reuse a workflow ID after the workflow is deleted
        if kept := self._find(name):
            return kept
        with self._reading:
            return self._find(name) or self._read(name, stored)

    def _find(self, name: tuple[str, int]) -> Document | None:
        with self._changing:
            if name not in self._kept:
                return None
            self._kept.move_to_end(name)
            return self._kept[name][0]

    def _read(self, name: tuple[str, int], stored: StoredWorkflow) -> Document | None:
        read = self._store.document(stored.id)
        if read is None:
            return None
        rows, size = read
        whole = document.unpack(stored.name, stored.description, rows)
        with self._changing:
            self._kept[name] = (whole, size)
            while len(self._kept) > 1 and sum(size for _, size in self._kept.values()) > _MAX_BYTES:
                self._kept.popitem(last=False)
        return whole
