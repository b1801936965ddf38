"""References to values that are stored in the cluster."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeAlias

#: Location of a value: its pickle; the hashes of the files with its pickle and its buffers; or, for the result of
#: another call, its position among the units on which the call depends.
Location: TypeAlias = bytes | tuple[str, ...] | int


class Reference:
    """Value that is stored in the cluster, so that many calls can use it. `Cluster.put` returns it.

    Pass a reference to a call as an argument or inside of an argument. The function receives the value. Each runner
    reads the value once. The cluster deletes the value after the last reference to it, or when the Cluster is closed.

        words = cluster.put(["a", "list", "of", "words"])
        with cluster.executor() as executor:
            print(executor.submit(len, words).result())
    """

    def __init__(
        self,
        location: Location,
        sizes: Mapping[str, int],
        delete: Callable[[], None],
        parts: tuple[Reference, ...] = (),
    ) -> None:
        """`parts` are references inside of the value. Users do not call this: see `Cluster.put`."""
        self._location, self._sizes, self._parts = location, sizes, parts
        self._finalizer = weakref.finalize(self, delete)
        self._finalizer.atexit = False

    @property
    def location(self) -> Location:
        """Location of the value in the cluster, for executors."""
        return self._location

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes in bytes of the files that calls need to read the value, keyed by SHA-256."""
        return self._sizes

    def __reduce__(self) -> NoReturn:
        raise TypeError("a reference can only be an argument of a call, or a part of one")

    def __repr__(self) -> str:
        return f"<Reference to {sum(self._sizes.values()):,} bytes>" if self._sizes else "<Reference>"
