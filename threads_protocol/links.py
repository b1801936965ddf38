"""Resolution of symbolic links in a tree, as in a file system. Links can pass through other links.

The text of a target is not enough: if `up` is a link to the root, `up/../x` is outside the tree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

#: Maximum number of links in a chain of symbolic links. Linux has the same limit.
_MOST_HOPS = 40
#: Maximum number of characters of paths that are compared to resolve all links of a tree.
_MOST_WORK = 256 << 20


class Links:
    """Resolver of the symbolic links in a tree. `links` contains the target of each link.

    `paths` are all paths of the tree, sorted.
    """

    def __init__(self, links: Mapping[str, str], paths: Sequence[str]) -> None:
        self._links = links
        self._paths = paths
        self._work = _MOST_WORK

    def resolve(self, link: str) -> str | None:
        """Return the path to which a link resolves. Return "" for the root, and None for a link that leaves the tree.

        Broken links also resolve to None.
        """
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
        """Return True if the path is an entry of the tree, or a folder that contains an entry."""
        at = bisect_left(self._paths, path)
        if at < len(self._paths) and self._paths[at] == path:
            return True
        at = bisect_left(self._paths, f"{path}/", at)
        return at < len(self._paths) and self._paths[at].startswith(f"{path}/")


def _segments(target: str) -> list[str]:
    """Split the target of a link into the segments of its path, in reverse order."""
    return [step for step in target.split("/") if step not in ("", ".")][::-1]
