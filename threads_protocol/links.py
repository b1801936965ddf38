"""Resolve symbolic links within a tree as a file system does, including links that pass through other links.

The text of a target is not enough: if `up` is a link to the root, `up/../x` is outside the tree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

#: Maximum length of a chain of symbolic links, as on Linux.
_MOST_HOPS = 40
#: Maximum number of path characters compared while resolving all links of a tree.
_MOST_WORK = 256 << 20


class Links:
    """Resolver of a tree's symbolic links. `links` maps paths to targets; `paths` are all paths of the tree, sorted."""

    def __init__(self, links: Mapping[str, str], paths: Sequence[str]) -> None:
        self._links = links
        self._paths = paths
        self._work = _MOST_WORK

    def resolve(self, link: str) -> str | None:
        """Return the path to which a link resolves ("" is the root), or None if it is broken or leaves the tree."""
        if self._links[link].startswith("/"):
            return None
        at, left, hops = link.split("/")[:-1], _segments(self._links[link]), 0
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
            if self._work < 0 or not self._exists(path):
                return None
            if (target := self._links.get(path)) is not None:
                hops += 1
                if hops > _MOST_HOPS or target.startswith("/"):
                    return None
                at.pop()
                left += _segments(target)
        return "/".join(at)

    def _exists(self, path: str) -> bool:
        """Return True if the path is an entry, or a folder that contains an entry."""
        at = bisect_left(self._paths, path)
        if at < len(self._paths) and self._paths[at] == path:
            return True
        at = bisect_left(self._paths, f"{path}/", at)
        return at < len(self._paths) and self._paths[at].startswith(f"{path}/")


def _segments(target: str) -> list[str]:
    """Split a link target into path segments, in reverse order."""
    return [step for step in target.split("/") if step not in ("", ".")][::-1]
