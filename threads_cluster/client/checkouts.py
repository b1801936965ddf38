"""Clusters that were started or joined from a checkout. The folder `.cluster` of the checkout has their state."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threads_cluster import settings
from threads_cluster.errors import UNREACHABLE, ClientError, Misconfigured


class NotRunning(ClientError):
    """The local cluster of a checkout is not running, so the client sends no request."""

    exit_code = UNREACHABLE


@dataclass(frozen=True)
class Checkout:
    """Checkout of this project with its data folder. The methods raise Misconfigured if the folder is not readable."""

    folder: Path

    def url(self) -> str:
        """Return the URL of the local cluster, or an empty string if the local cluster is not running.

        A killed cluster leaves the file with its URL, so the file counts only while the cluster's lock is held.
        Another program can have the port by then.
        """
        return self._text("url") if self.is_locked() else ""

    def has_cluster(self) -> bool:
        """Return True if a local cluster was started in this checkout. Its first start creates its token."""
        return bool(self._text("token")) or self.is_locked()

    def is_starting(self) -> bool:
        """Return True if the local cluster is starting or stopping. Its address is not available yet, or not now."""
        return not self._text("url") and self.is_locked()

    def membership(self) -> dict[str, Any]:
        """Return the cluster that this checkout has joined, or an empty dictionary."""
        try:
            joined = json.loads(self._text("joined/host.json") or "{}")
        except ValueError:
            return {}
        return joined if isinstance(joined, dict) and isinstance(joined.get("url"), str) else {}

    def authority(self) -> str:
        """Return the path of the only authority that may certify the joined cluster, or an empty string."""
        return str(self.folder / "joined" / "authority.pem") if self.membership().get("pinned") else ""

    def running_url(self) -> str:
        """Return the URL of the local cluster. Raises NotRunning if it is not running."""
        url = self.url()
        if url:
            return url
        place = self.folder.parent
        cluster, start = f"the cluster of the checkout {place}", f"{place}/deploy-cluster.sh local"
        if (place / "releases").is_dir():  # an installation
            cluster, start = f"the cluster in {place}", "cluster start"
        if self.is_starting():
            raise NotRunning(f"{cluster} is starting: try again when its terminal says Ready")
        raise NotRunning(
            f"{cluster} is not running; start it with {start}, or "
            "choose another cluster with --context NAME (see cluster context list) or CLUSTER_URL"
        )

    def ports(self) -> str:
        """Return the names and numbers of all ports that the local cluster uses, or an empty string."""
        return self._text("ports").replace(":", "").replace("\n", ", ")

    def _text(self, name: str) -> str:
        """Return the text of a file in the folder, or an empty string if the file does not exist."""
        try:
            return (self.folder / name).read_text().strip()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as error:
            raise _unreadable(error) from None

    def is_locked(self) -> bool:
        """Return True if a process holds the lock of the local cluster, from its start until its end."""
        try:
            import fcntl

            with (self.folder / "lock").open() as opened:
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except (ImportError, FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _unreadable(error) from None
        return False


def own() -> Checkout:
    """Return the checkout that contains this client."""
    return Checkout(settings.LOCAL_FOLDER)


def ports_of(url: str) -> str:
    """Return the names and numbers of the ports that this checkout's cluster uses, or "" for another cluster."""
    with contextlib.suppress(Misconfigured):
        return own().ports() if url == own().url() else ""
    return ""


def _unreadable(error: OSError) -> Misconfigured:
    refused = Misconfigured(f"the local cluster's files cannot be read: {error.filename}: {error.strerror}")
    refused.next = "run the command as the user who started the cluster, or set CLUSTER_URL and CLUSTER_TOKEN"
    return refused
