"""Tokens that `cluster login` keeps: one file for this user alone, by the address of each cluster."""

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
    """A token, what people call it, and what to do when a cluster refuses it, or needs one where there is none."""

    token: str
    #: Such as CLUSTER_TOKEN, or the file; empty without a token.
    name: str
    next: str


NONE = Credential("", "", "set CLUSTER_TOKEN, or run: cluster login")
#: What to do while the local cluster of this checkout starts: nobody has its address and its token before it is ready.
STARTING = "the local cluster of this checkout is starting: try again when its terminal says Ready"
_RESTART = "start the local cluster again, which makes a new token: ./deploy-cluster.sh stop, then local"


def credential_for(address: str, stated: settings.Settings) -> Credential:
    """Return what opens the cluster at this address: CLUSTER_TOKEN, else a login, else the local cluster's own token.

    NONE when there is none. Misconfigured for a file that others can read. A token is for its own address alone.
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
    """Return a token that a program gave; it may be empty."""
    return Credential(token, "the token that was given", NONE.next) if token else NONE


def keep(address: str, token: str, stated: settings.Settings) -> Path:
    """Keep a token for this address, and return the file."""
    return _write(_place(stated), _kept(stated) | {address: token})


def forget(address: str, stated: settings.Settings) -> bool:
    """Forget the token of this address; False when there is none."""
    known = _kept(stated)
    if known.pop(address, None) is None:
        return False
    _write(_place(stated), known)
    return True


def is_local(address: str) -> bool:
    """Return True for the address that the local cluster of this checkout wrote when it was up, until it stops."""
    try:
        return settings.of_local_cluster() == address
    except OSError:  # another user's
        return False


def is_starting(address: str) -> bool:
    """Return True for an address of this machine while the local cluster of this checkout starts, or stops."""
    held, up = settings.LOCAL_FOLDER / "lock", settings.LOCAL_FOLDER / "url"
    try:
        return _LOOPBACK.search(address) is not None and held.is_file() and not up.is_file() and _is_locked(held)
    except OSError:  # another user's
        return False


_LOOPBACK = re.compile(r"://(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?/?$")


def _is_locked(file: Path) -> bool:
    """Return True where a process holds the lock on a file, as whoever starts a local cluster does."""
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
    """Return the token of the local cluster of this checkout, when that is who is asked."""
    file = settings.LOCAL_FOLDER / "token"
    if not is_local(address) or not file.is_file():
        return ""
    _check_private(file)
    return file.read_text().strip()


def _place(stated: settings.Settings) -> Path:
    file = stated.logins_file()
    if file is None:
        error = Misconfigured("there is no folder in which a token could be kept: this user has no home")
        error.next = "set HOME or XDG_CONFIG_HOME to a folder of yours; or keep no token, and set CLUSTER_TOKEN"
        raise error
    return file


def _kept(stated: settings.Settings) -> dict[str, str]:
    """Return the tokens that are kept, by address. Misconfigured for a file that cannot be used."""
    file = stated.logins_file()
    if file is None:
        return {}
    try:
        return _read(file)
    except OSError as error:
        raise _unusable(file, f"it cannot be read: {error.strerror}", "") from None


def _read(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    _check_private(file)
    try:
        known = json.loads(file.read_text())
        return {str(address): str(token) for address, token in known.items()}
    except (ValueError, AttributeError):
        raise _unusable(file, "it is not what cluster login writes", f"remove it: rm {file}") from None


def _write(file: Path, known: dict[str, str]) -> Path:
    """Replace the file, readable by its owner alone from the first byte on."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump(known, out, indent=1)
        new.replace(file)
    except OSError as error:
        raise _unusable(file, f"it cannot be written: {error.strerror}", "") from None
    return file


def _check_private(file: Path) -> None:
    if file.stat().st_mode & 0o077:
        raise _unusable(file, "others can read it", f"revoke its tokens if that is so; then: chmod 600 {file}")


def _unusable(file: Path, why: str, advice: str) -> Misconfigured:
    error = Misconfigured(f"{file} holds tokens and cannot be used: {why}")
    error.next = advice
    return error
