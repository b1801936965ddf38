"""Links of a tree: where each one ends when it is followed as a file system does, through other links too. Pure.

To look at the text of a target alone is not enough: if `up` is a link to the top, `up/../x` is outside the tree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

#: Links that one link leads through at most, as on Linux.
_MOST_HOPS = 40
#: Characters that are compared for all links of a tree at most.
_MOST_WORK = 256 << 20


class Links:
    """Links of a tree, given as target by path, and the sorted paths of all entries of the tree."""

    def __init__(self, links: Mapping[str, str], paths: Sequence[str]) -> None:
        self._links = links
        self._paths = paths
        self._work = _MOST_WORK

    def end(self, link: str) -> str | None:
        """Return the path at which a link ends, empty for the top; None when that is outside, or nowhere."""
        if self._links[link].startswith("/"):
            return None
        at, left, hops = link.split("/")[:-1], _steps(self._links[link]), 0
        while left:
            step = left.pop()
            if step == "..":
                if not at:
                    return None
                at.pop()
                continue
            at.append(step)
            path = "/".join(at)
            self._work -= len(path)
            if self._work < 0 or not self._is_there(path):
                return None
            if (target := self._links.get(path)) is not None:
                hops += 1
                if hops > _MOST_HOPS or target.startswith("/"):
                    return None
                at.pop()
                left += _steps(target)
        return "/".join(at)

    def _is_there(self, path: str) -> bool:
        """Return True for an entry, and for a folder that has some."""
        at = bisect_left(self._paths, path)
        if at < len(self._paths) and self._paths[at] == path:
            return True
        at = bisect_left(self._paths, f"{path}/", at)
        return at < len(self._paths) and self._paths[at].startswith(f"{path}/")


def _steps(target: str) -> list[str]:
    """Return the steps of a target, the last one first."""
    return [step for step in target.split("/") if step not in ("", ".")][::-1]
