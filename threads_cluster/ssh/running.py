"""Implementation of `cluster run --on ssh`, which runs a program on the best host of cluster.yaml."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from threads_cluster import errors
from threads_cluster.cli import program_options as options
from threads_cluster.cli import show
from threads_cluster.cli.commands import artifact_commands
from threads_cluster.cli.running import StoppedWaiting, check_reader, ending_signals, write
from threads_cluster.client import trees
from threads_cluster.ssh import health, hosts
from threads_cluster.ssh.configuration import Node
from threads_cluster.ssh.hosts import Hosts
from threads_cluster.ssh.refusals import HostTrouble
from threads_cluster.ssh.remote import Program, Remote
from threads_cluster.ssh.sync import Sender, Synced
from threads_protocol.folders import Tree

#: Maximum number of attempts after lost connections.
#: Seconds before the second attempt. Each further attempt doubles the delay.
_STARTS, _BACKOFF_SECONDS = 3, 1.0
#: Seconds to wait until a cancelled program exits on the host.
_END_SECONDS = 30.0
#: Options that are supported with --on ssh.
_TAKEN = ("env", "exclude", "host", "label", "timeout", "shell")


def run(
    words: Sequence[str] | None,
    given: dict[str, Any],
    *,
    files: Path | None,
    no_files: bool,
    quiet: bool,
    config_file: Path | None = None,
) -> int:
    """Run a program on a host, and return its exit code. Raises ClientError and BadParameter."""
    check_options(given)
    text = given["shell"]
    program = options.program(words, given)  # Validates the arguments and variables
    command = ["/bin/sh", "-c", text] if text is not None else list(words or ())
    config = hosts.configuration(config_file)
    if config is None:
        error = errors.BadArgument("this folder has no cluster.yaml, which lists the hosts")
        error.next = "write one, such as: nodes: [gpu1, gpu2]   docs/ssh.md describes the format"
        raise error
    folder = None if no_files else options.folder(files)
    patterns = [*config.sync.exclude_patterns, *(given["exclude"] or ())]
    tree = None if folder is None else trees.scan(folder, patterns)
    say = (lambda _text: None) if quiet else info
    with Hosts(list, config) as opened:
        started = _Run(opened, tree, command, program.env, program.timeout_seconds or 0.0, say, quiet=quiet)
        return started.run_to_end(_eligible(opened, program.host, program.labels))


def check_options(given: Mapping[str, Any]) -> None:
    """Raise BadParameter for an option that needs a runner."""
    for name, value in given.items():
        if value and name not in _TAKEN:
            flag = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"is not supported with --on ssh; {flag} needs a runner", param_hint=f"'{flag}'")


def _eligible(opened: Hosts, host: str | None, labels: Sequence[str]) -> list[Node]:
    assert opened.config is not None
    nodes = [opened.config.node(host)] if host else list(opened.config.nodes)
    nodes = [node for node in nodes if set(labels) <= set(node.labels)]
    if not nodes:
        raise errors.BadArgument(f"no node of cluster.yaml has the labels {', '.join(labels)}", "label")
    return nodes


def info(text: str) -> None:
    """Print progress on stderr, where it does not mix with the program's output."""
    show.say(f"[INFO] {text}")


class _Run:
    """Program that is restarted after lost connections, until a host has run it completely."""

    def __init__(
        self,
        opened: Hosts,
        tree: Tree | None,
        words: Sequence[str],
        env: Mapping[str, str],
        timeout_seconds: float,
        say: Callable[[str], None],
        *,
        quiet: bool,
    ) -> None:
        self._hosts, self._tree, self._words, self._env = opened, tree, words, env
        self._timeout, self._say, self._quiet = timeout_seconds, say, quiet
        self._wrote = False

    def run_to_end(self, nodes: Sequence[Node]) -> int:
        """Run the program and return its exit code. After a lost connection, choose a host again and retry."""
        for attempt in range(1, _STARTS + 1):
            try:
                return self._attempt(self._choose(nodes))
            except HostTrouble as trouble:
                if not trouble.passing or attempt == _STARTS:
                    raise
                wait = _BACKOFF_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
                show.say(f"[WARNING] {trouble}; retrying in {wait:.1f} s, attempt {attempt + 1} of {_STARTS}")
                time.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _choose(self, nodes: Sequence[Node]) -> Node:
        if len(nodes) == 1:
            self._say(f"Selected {nodes[0].name}")
            return nodes[0]
        best = health.choose(self._hosts.run(health.check_nodes(self._hosts.pool, nodes)))
        if not best.healthy:
            show.say(f"[WARNING] no host is healthy; {best.name} has the lowest score: {best.reason}")
        self._say(f"Selected {best.name} (score: {best.score:.1f})")
        return next(node for node in nodes if node.name == best.name)

    def _attempt(self, node: Node) -> int:
        with ending_signals() as received:
            folder = self._sync(node)
            program = Program(words=self._words, folder=folder, env=self._env, timeout_seconds=self._timeout)
            remote = Remote(self._hosts.pool, node, program)
            self._say(f"Running command on {node.name}")
            try:
                self._hosts.run(remote.start())
                self._show(remote)
                return int(self._hosts.run(remote.code()))
            except KeyboardInterrupt:
                self._end(remote, node)
                return 128 + (received[0] if received else 2)
            except HostTrouble:
                self._wait_for_end(remote, node)
                raise
            except OSError:
                with suppress(errors.ClientError):
                    self._hosts.run(remote.end())
                raise

    def _sync(self, node: Node) -> str:
        """Send the folder to a host, and return its path on the host."""
        around = self._hosts.pool.config.root(node)
        if self._tree is None:
            return str(self._hosts.run(create_directory(self._hosts.pool, node, around)))
        self._say(f"Syncing to {node.name}:{around}/{self._tree.root.resolve().name}")
        with artifact_commands.progress("sent", quiet=self._quiet) as progress:
            done: Synced = self._hosts.run(Sender(self._hosts.pool, node, self._tree, progress).send())
        removed = f"; removed {done.removed:,}" if done.removed else ""
        self._say(f"Sent {done.sent_files:,} of {done.files:,} files, {done.sent_bytes:,} bytes{removed}")
        return done.folder

    def _show(self, remote: Remote) -> None:
        while (piece := self._hosts.run(remote.piece())) is not None:
            self._wrote = True
            check_reader()
            write(*piece)

    def _end(self, remote: Remote, node: Node) -> None:
        """Stop the program on the host, and print its remaining output. A second Ctrl-C raises StoppedWaiting."""
        show.say(f"cluster: stopping the program on {node.name}; press Ctrl-C again to stop waiting")
        deadline = time.monotonic() + _END_SECONDS
        try:
            self._hosts.run(remote.end())
            while (piece := self._hosts.run(remote.piece(), deadline - time.monotonic())) is not None:
                write(*piece)
            self._hosts.run(remote.code(), _END_SECONDS)
        except (HostTrouble, TimeoutError):
            show.say(
                f"cluster: {node.name} did not confirm the exit; it kills the program within "
                f"{remote.silent_seconds:g} s"
            )
            return
        except KeyboardInterrupt:
            seconds = remote.silent_seconds
            raise StoppedWaiting(f"the program can still run on {node.name} for up to {seconds:g} s") from None
        show.say(f"cluster: the program has exited on {node.name}")

    def _wait_for_end(self, remote: Remote, node: Node) -> None:
        """Wait until an unreachable host has killed the program. Otherwise, the program could run twice."""
        self._hosts.run(remote.leave())
        if (seconds := remote.quiet_seconds()) > 0:
            show.say(f"[WARNING] lost the connection to {node.name}; the host kills the program within {seconds:.0f} s")
            time.sleep(seconds)
        if self._wrote:
            show.say("[WARNING] the output of the restarted program follows from the beginning")


async def create_directory(pool: Any, node: Node, folder: str) -> str:
    """Create a folder on a host, and return its absolute path."""
    async with pool.channel(node) as connection, connection.start_sftp_client() as sftp:
        place = f"{await sftp.realpath('.')}/{folder[2:]}" if folder.startswith("~/") else folder
        await sftp.makedirs(place, exist_ok=True)
        return place
