"""Tokens that `cluster login` stores in a private file, keyed by the address of the cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from threads_cluster import settings
from threads_cluster.client import checkouts, private_files
from threads_cluster.client.contexts import Context
from threads_cluster.errors import ClientError, Misconfigured


@dataclass(frozen=True)
class Credential:
    """Token of a cluster, with its description and with advice if the cluster rejects it."""

    token: str
    #: Description of the token, such as CLUSTER_TOKEN or a path. Empty if there is no token.
    name: str
    next: str


NONE = Credential("", "", "set CLUSTER_TOKEN, or run: cluster login")
#: Advice while the local cluster of this checkout is starting. Its address and token are not available yet.
STARTING = "the local cluster of this checkout is starting: try again when its terminal says Ready"
_RESTART = "start the local cluster again, which makes a new token: ./deploy-cluster.sh stop, then local"


def credential_for(cluster: Context, stated: settings.Settings) -> Credential:
    """Return the token for a cluster: CLUSTER_TOKEN, a stored login, or the token of the local cluster.

    Returns NONE if there is no token. Raises Misconfigured if other users can read the token file. A stored token is
    used only for its own address.
    """
    if stated.cluster_token:
        return Credential(
            stated.cluster_token, "CLUSTER_TOKEN", "set CLUSTER_TOKEN to another, or unset it and run: cluster login"
        )
    login = _kept(stated).get(cluster.url, "")
    if login:
        return Credential(login, f"the token in {stated.logins_file()}", f"run: cluster login {cluster.url}")
    if (cluster.folder and cluster.folder != str(settings.LOCAL_FOLDER)) or is_local(cluster.url):
        return _local(Path(cluster.folder or settings.LOCAL_FOLDER))
    return Credential("", "", STARTING) if is_starting(cluster.url) else NONE


def given(token: str) -> Credential:
    """Return the credential for a token from the caller. The token can be empty."""
    return Credential(token, "the token argument", NONE.next) if token else NONE


def has_token(address: str, stated: settings.Settings) -> bool:
    """Return True if a token is stored for the address of a cluster."""
    return address in _kept(stated)


def keep(address: str, token: str, stated: settings.Settings) -> Path:
    """Store a token for the address of a cluster, and return the path of the file."""
    file = _place(stated)
    with private_files.locked(file):
        private_files.write_json(file, _kept(stated) | {address: token})
    return file


def forget(address: str, stated: settings.Settings) -> bool:
    """Delete the stored token for an address. Return False if there is none."""
    if address not in _kept(stated):
        return False
    file = _place(stated)
    with private_files.locked(file):
        private_files.write_json(file, {each: token for each, token in _kept(stated).items() if each != address})
    return True


def is_local(address: str) -> bool:
    """Return True if the local cluster of this checkout is running at this address."""
    try:
        return checkouts.own().url() == address
    except ClientError:  # Another user owns the file
        return False


def is_starting(address: str) -> bool:
    """Return True if an address is on this machine and the local cluster of this checkout is starting or stopping."""
    try:
        return _LOOPBACK.search(address) is not None and checkouts.own().is_starting()
    except ClientError:  # Another user owns the file
        return False


_LOOPBACK = re.compile(r"://(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?/?$")


def _local(folder: Path) -> Credential:
    """Return the token of the local cluster with this data folder, or NONE before its first start."""
    file = folder / "token"
    if not file.is_file():
        return NONE
    private_files.check_private(file)
    own = folder == settings.LOCAL_FOLDER
    return Credential(file.read_text().strip(), f"the token in {'.cluster/token' if own else file}", _RESTART)


def _place(stated: settings.Settings) -> Path:
    file = stated.logins_file()
    if file is None:
        error = Misconfigured("the token cannot be stored because this user has no home directory")
        error.next = "set HOME or XDG_CONFIG_HOME to a directory, or set CLUSTER_TOKEN instead of logging in"
        raise error
    return file


def _kept(stated: settings.Settings) -> dict[str, str]:
    """Return all stored tokens, keyed by address. Raises UnusableFile."""
    file = stated.logins_file()
    known = private_files.read_json(file) if file else None
    if file is None or known is None:
        return {}
    if not isinstance(known, dict):
        raise private_files.foreign(file)
    return {str(address): str(token) for address, token in known.items()}
