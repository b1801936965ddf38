"""Contexts of this user for the clusters that were started or joined here, so that `cluster` finds them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.outcome import say
from jobs.settings import LOCAL_FOLDER
from threads_cluster import settings
from threads_cluster.client import contexts
from threads_cluster.client.contexts import Context
from threads_cluster.errors import ClientError


def keep_local(url: str) -> None:
    """Store a context for the local cluster. It is selected only if no context is selected."""
    with _reported():
        contexts.keep(Context(url, folder=str(LOCAL_FOLDER)), settings.load(), select=False)


def keep_joined(url: str, authority: str) -> None:
    """Store a context for a cluster that this machine has joined. It is selected only if no context is selected."""
    with _reported():
        contexts.keep(Context(url, authority=authority), settings.load(), select=False)


def delete(folder: Path = LOCAL_FOLDER) -> None:
    """Delete the contexts of the clusters whose files are in a folder, by default of all clusters of this checkout."""
    with _reported():
        contexts.delete_of_folder(folder, settings.load())


@contextmanager
def _reported() -> Iterator[None]:
    """Report an error instead of raising it, because clusters and workers need no context."""
    try:
        yield
    except ClientError as error:
        say(f"note: the list of contexts was not changed: {error}")
