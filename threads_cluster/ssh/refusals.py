"""Errors of hosts that cannot be used over SSH, with advice to the user."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from threads_cluster import errors
from threads_cluster.ssh.configuration import Node

#: Requirements file of this checkout that contains the hashes of asyncssh.
_PINNED = Path(__file__).resolve().parents[2] / "requirements" / "ssh.txt"


class HostTrouble(errors.ClientError):
    """A host cannot be used over SSH."""

    #: True if another attempt can succeed.
    passing = False

    def __init__(self, node: Node, why: str, advice: str = "") -> None:
        super().__init__(f"{node.name}: {why}")
        self.why, self.next = why, advice


class TransientTrouble(HostTrouble):
    """A host is not reachable or its connection was lost, so another attempt can succeed."""

    passing = True


class Missing(errors.Misconfigured):
    """A package that SSH requires is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"SSH needs the package {package}, which is not installed")
        what = f"--require-hashes -r {shlex.quote(str(_PINNED))}" if _PINNED.is_file() else "'threads-cluster[ssh]'"
        self.next = f"{shlex.quote(sys.executable)} -m pip install {what}"


def check_installed() -> None:
    """Raise Missing if a package that SSH requires is not installed."""
    from importlib.util import find_spec

    for package in ("asyncssh", "yaml"):
        try:
            there = find_spec(package) is not None
        except ValueError:  # The import of the package is blocked
            there = False
        if not there:
            raise Missing(package)


def trouble(node: Node, error: BaseException, *, seconds: float, user: str) -> HostTrouble:
    """Convert an error of a connection or a command into a HostTrouble with advice."""
    import asyncssh

    if isinstance(error, HostTrouble):
        return error
    if isinstance(error, TimeoutError):
        return TransientTrouble(node, f"no response within {seconds:g} s", _reach(node))
    if isinstance(error, asyncssh.PermissionDenied):
        return HostTrouble(
            node, f"rejected every SSH key of {user}", f"run once on this machine: {_ssh(node, 'ssh-copy-id')}"
        )
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return HostTrouble(node, f"no common encryption algorithm: {error.reason}", _reach(node))
    if isinstance(error, (asyncssh.KeyImportError, asyncssh.KeyEncryptionError)):
        advice = "set key_file to a key without a passphrase, or add your key to the agent: ssh-add"
        return HostTrouble(node, f"cannot read a key: {error}", advice)
    if isinstance(error, asyncssh.Error):
        return TransientTrouble(node, f"lost the connection: {error.reason or type(error).__name__}", _reach(node))
    if isinstance(error, OSError):
        return TransientTrouble(node, f"not reachable: {_describe(error)}", _reach(node))
    if isinstance(error, ValueError):  # asyncssh rejected the configuration
        return HostTrouble(node, f"invalid connection settings: {error}", _reach(node))
    raise error


def unknown_key(node: Node, key: Any, *, known: bool, files: str) -> HostTrouble:
    """Return the error for a host key that is unknown or that has changed."""
    fingerprint = f"{key.get_algorithm()} {key.get_fingerprint()}"
    if not known:
        advice = (
            f"{_ssh(node, 'ssh')} true   Compare {key.get_fingerprint()} with the fingerprint from its owner before you"
            f" answer yes. Or, if you trust the network: ssh-keyscan -p {node.port or 22} {node.host} >> {files}"
        )
        return HostTrouble(node, f"unknown host key: {fingerprint}", advice)
    advice = (
        "nothing was sent. If its owner confirms the change: ssh-keygen -R"
        f" {shlex.quote(node.host if node.port in (None, 22) else f'[{node.host}]:{node.port}')} -f {files}"
        f" and then {_ssh(node, 'ssh')} true"
    )
    return HostTrouble(node, f"the host key has CHANGED, or the connection is intercepted: {fingerprint}", advice)


def _describe(error: OSError) -> str:
    number = error.errno or 0  # Errors of getaddrinfo are negative
    return (os.strerror(number) if number > 0 else str(error) or type(error).__name__).lower()


def _reach(node: Node) -> str:
    return f"check whether this works: {_ssh(node, 'ssh')} true"


def _ssh(node: Node, command: str) -> str:
    """Return an OpenSSH command for a host, which users can paste into a shell."""
    words = [command]
    words += ["-p", str(node.port)] if node.port else []
    words += ["-i", node.key_file] if node.key_file else []
    words += ["-o", f"ProxyCommand={node.proxy_command}"] if node.proxy_command else []
    return shlex.join([*words, f"{node.user}@{node.host}" if node.user else node.host])
