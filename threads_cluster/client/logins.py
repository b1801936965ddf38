"""Tokens that `cluster login` stores in a private file, keyed by the address of the cluster."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from threads_cluster import settings
from threads_cluster.errors import Misconfigured


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


def credential_for(address: str, stated: settings.Settings) -> Credential:
    """Return the token for a cluster: CLUSTER_TOKEN, a stored login, or the token of the local cluster.

    Returns NONE if there is no token. Raises Misconfigured if other users can read the token file. A stored token is
    used only for its own address.
    """
    if stated.cluster_token:
        return Credential(
            stated.cluster_token, "CLUSTER_TOKEN", "set CLUSTER_TOKEN to another, or unset it and run: cluster login"
        )
    login = _kept(stated).get(address, "")
    if login:
        return Credential(login, f"the token in {stated.logins_file()}", f"run: cluster login {address}")
    local = _local(address)
    if local:
        return Credential(local, "the token in .cluster/token", _RESTART)
    return Credential("", "", STARTING) if is_starting(address) else NONE


def given(token: str) -> Credential:
    """Return the credential for a token from the caller. The token can be empty."""
    return Credential(token, "the token argument", NONE.next) if token else NONE


def keep(address: str, token: str, stated: settings.Settings) -> Path:
    """Store a token for the address of a cluster, and return the path of the file."""
    return _write(_place(stated), _kept(stated) | {address: token})


def forget(address: str, stated: settings.Settings) -> bool:
    """Delete the stored token for an address. Return False if there is none."""
    known = _kept(stated)
    if known.pop(address, None) is None:
        return False
    _write(_place(stated), known)
    return True


def is_local(address: str) -> bool:
    """Return True if the local cluster of this checkout is running at this address."""
    try:
        return settings.of_local_cluster() == address
    except OSError:  # Another user owns the file
        return False


def is_starting(address: str) -> bool:
    """Return True if an address is on this machine and the local cluster of this checkout is starting or stopping."""
    held, up = settings.LOCAL_FOLDER / "lock", settings.LOCAL_FOLDER / "url"
    try:
        return _LOOPBACK.search(address) is not None and held.is_file() and not up.is_file() and _is_locked(held)
    except OSError:  # Another user owns the file
        return False


_LOOPBACK = re.compile(r"://(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?/?$")


def _is_locked(file: Path) -> bool:
    """Return True if a process has locked a file. While a local cluster starts, its file is locked."""
    try:
        import fcntl

        with file.open() as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        pass
    return False


def _local(address: str) -> str:
    """Return the token of this checkout's local cluster if the address is the address of this cluster."""
    file = settings.LOCAL_FOLDER / "token"
    if not is_local(address) or not file.is_file():
        return ""
    _check_private(file)
    return file.read_text().strip()


def _place(stated: settings.Settings) -> Path:
    file = stated.logins_file()
    if file is None:
        error = Misconfigured("the token cannot be stored because this user has no home directory")
        error.next = "set HOME or XDG_CONFIG_HOME to a directory, or set CLUSTER_TOKEN instead of logging in"
        raise error
    return file


def _kept(stated: settings.Settings) -> dict[str, str]:
    """Return all stored tokens, keyed by address. Raises Misconfigured if the file is not usable."""
    file = stated.logins_file()
    if file is None:
        return {}
    try:
        return _read(file)
    except OSError as error:
        raise _unusable(file, f"the file cannot be read: {error.strerror}", "") from None


def _read(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    _check_private(file)
    try:
        known = json.loads(file.read_text())
        return {str(address): str(token) for address, token in known.items()}
    except (ValueError, AttributeError):
        raise _unusable(file, "the file was not written by cluster login", f"remove it: rm {file}") from None


def _write(file: Path, known: dict[str, str]) -> Path:
    """Replace the file with the tokens atomically. At all times, only its owner can read it."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump(known, out, indent=1)
        new.replace(file)
    except OSError as error:
        raise _unusable(file, f"the file cannot be written: {error.strerror}", "") from None
    return file


def _check_private(file: Path) -> None:
    if file.stat().st_mode & 0o077:
        raise _unusable(file, "other users can read it", f"revoke its tokens if they were read; then: chmod 600 {file}")


def _unusable(file: Path, why: str, advice: str) -> Misconfigured:
    error = Misconfigured(f"{file} contains tokens and cannot be used: {why}")
    error.next = advice
    return error
