"""Contexts of this user for the clusters that were started or joined here, so that `cluster` finds them elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from deploy.local.outcome import say
from jobs.settings import LOCAL_FOLDER
from threads_cluster import settings
from threads_cluster.client import contexts
from threads_cluster.client.contexts import Context
from threads_cluster.errors import ClientError


def keep_local(url: str) -> None:
    """Store a context for the local cluster. It is selected only if no context is selected."""
    _keep(Context(url, folder=str(LOCAL_FOLDER)))


def keep_at(url: str, authority: str = "") -> None:
    """Store a context for a cluster in containers or on Kubernetes, or for a cluster that this machine has joined.

    It is selected only if no context is selected.
    """
    _keep(Context(url, authority=authority))


def delete(folder: Path = LOCAL_FOLDER) -> None:
    """Delete the contexts of the clusters whose files are in a folder, by default of all clusters of this checkout."""

    def matches(each: Context) -> bool:
        return any(Path(path).is_relative_to(folder) for path in (each.folder, each.authority) if path)

    _change_contexts(lambda: contexts.delete_matching(matches, settings.load()))


def delete_at(url: str) -> None:
    """Delete the context of a cluster that is not local."""
    _change_contexts(lambda: contexts.delete_matching(lambda each: each == Context(url, each.name), settings.load()))


def _keep(context: Context) -> None:
    _change_contexts(lambda: contexts.keep(context, settings.load(), select=False))


def _change_contexts(change: Callable[[], object]) -> None:
    """Change the contexts. Errors are printed instead of raised, because clusters and workers need no context.

    With sudo, the home directory can belong to another user, who could not read a file of root.
    """
    home = settings.home()
    try:
        if home and os.geteuid() == 0 and home.stat().st_uid != 0:
            say(f"note: the list of contexts was not changed, because {home} does not belong to root")
        else:
            change()
    except (ClientError, OSError) as error:
        say(f"note: the list of contexts was not changed: {error}")
