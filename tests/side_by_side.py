"""Which tests pytest-xdist keeps together: those that share a cluster. It is given `--dist loadscope`."""

from __future__ import annotations

from pathlib import PurePath

from xdist.scheduler import LoadScopeScheduling

#: Folders whose tests share a cluster, by file or all of them.
BY_FILE, WHOLE = {"integration", "browser"}, {"hostile", "stack"}


def group(nodeid: str) -> str:
    """Return the name of the tests that run one after the other in one process; every other test is by itself."""
    file = nodeid.partition("::")[0]
    folder = PurePath(file).parent.name
    if folder in WHOLE:
        return folder
    return file if folder in BY_FILE else nodeid


class Groups(LoadScopeScheduling):
    """A scheduler that deals out groups, in the order of the command line."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
