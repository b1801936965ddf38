"""Implementation of `cluster up` and `cluster down`, which add hosts of cluster.yaml to the cluster and remove them."""

from __future__ import annotations

import asyncio
import json
import posixpath
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threads_cluster import errors
from threads_cluster.client import trees
from threads_cluster.ssh.configuration import Node
from threads_cluster.ssh.pool import Pool
from threads_cluster.ssh.refusals import HostTrouble
from threads_cluster.ssh.remote import Program, Remote, shell_path
from threads_cluster.ssh.sync import Sender, Synced
from threads_cluster.terminal import visible
from threads_protocol.folders import Tree

#: Folder of the checkout that contains this client.
CHECKOUT = Path(__file__).resolve().parents[2]
#: Name of the checkout's folder on a host, below remote_root.
FOLDER = "threads-cluster"
#: Maximum number of characters shown from the output of a failed step.
#: Maximum number of bytes stored from the output of a step.
_SHOWN, _KEPT = 600, 64 << 10
#: Timeout in seconds of one step on a host.
_SECONDS = 150.0
#: Maximum number of hosts that are processed at the same time.
_HOSTS = 16

#: Callback that reports the progress on a host.
Say = Callable[[Node, str], None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """State of a host after `cluster up` or `cluster down`."""

    name: str
    #: Result: up, already up, down, not joined or failed.
    state: str
    detail: str = ""
    advice: str = ""


def checkout() -> Tree:
    """Return the files of this checkout that git tracks. Raises ClientError outside of a checkout."""
    if not (CHECKOUT / "deploy-cluster.sh").is_file():
        error = errors.Misconfigured("up needs a checkout of the cluster, because it copies the checkout to the hosts")
        error.next = "run .venv/bin/cluster in the checkout from which ./deploy-cluster.sh local was started"
        raise error
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise errors.Misconfigured(f"{CHECKOUT}: git ls-files failed: {error}") from None
    names = [name for name in done.stdout.decode(errors="surrogateescape").split("\0") if name]
    return trees.listed(CHECKOUT, [name for name in names if (CHECKOUT / name).is_file()])


def invitation(address: str | None, labels: Sequence[str] = ()) -> str:
    """Create an invitation to the cluster of this checkout, which a host can use once. Raises ClientError.

    `labels` are the labels of the host that joins with it.
    """
    options = {"--address": address, "--labels": ",".join(labels)}
    given = [word for option, value in options.items() if value for word in (option, value)]
    command = [sys.executable, "-m", "deploy.local", "invite", "--only-text", *given]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        error = errors.ClientError(visible(done.stderr.strip().removeprefix("error: "), _SHOWN))
        error.next = "start the cluster of this checkout with: ./deploy-cluster.sh local"
        raise error
    return done.stdout.strip()


async def process_all(nodes: Sequence[Node], work: Callable[[Node], Awaitable[Outcome]]) -> list[Outcome]:
    """Process several hosts in parallel and return their outcomes. An error on one host does not affect the others."""
    places = asyncio.Semaphore(_HOSTS)

    async def one(node: Node) -> Outcome:
        async with places:
            try:
                return await work(node)
            except errors.ClientError as error:
                why = error.why if isinstance(error, HostTrouble) else str(error)
                return Outcome(name=node.name, state="failed", detail=why, advice=error.next)

    return list(await asyncio.gather(*map(one, nodes)))


class Installer:
    """Installer that joins hosts to the cluster. Use it in the event loop of the connection pool."""

    def __init__(self, pool: Pool, tree: Tree, say: Say, invite: Callable[[Sequence[str]], str]) -> None:
        self._pool, self._tree, self._say, self._invite = pool, tree, say, invite
        self._inviting = asyncio.Lock()

    async def up(self, node: Node) -> Outcome:
        """Join a host to the cluster, unless it has already joined. Raises HostTrouble."""
        host = _Checkout(self._pool, node)
        if (state := await host.running_state()) is not None:
            return Outcome(name=node.name, state="already up", detail=_detail(state))
        self._say(node, "is receiving the checkout")
        sent = await self._send(node)
        host.folder = sent.folder
        if not node.python:
            self._say(node, "is installing packages; the first time takes a minute or two")
            for group in ("local", *(["gpu-worker"] if node.gpu else [])):
                await host.install(group)
        before = await host.read_state("state")
        if before["running"]:
            advice = f"stop that cluster on the host, in {host.folder}: ./deploy-cluster.sh stop"
            raise HostTrouble(node, "the checkout on the host is running its own cluster", advice)
        self._say(node, "is starting its workers" if before["joined"] else "is joining")
        line = "" if before["joined"] else await self._create_invitation(node)
        after = await host.read_state(
            "join-detached", *([] if before["joined"] else ["--", *_options(node)]), line=line
        )
        return Outcome(name=node.name, state="up", detail=_detail(after))

    async def _send(self, node: Node) -> Synced:
        return await Sender(self._pool, node, self._tree, lambda _sent, _all: None, name=FOLDER).send()

    async def _create_invitation(self, node: Node) -> str:
        async with self._inviting:  # Only one invitation at a time can write the TLS files
            return await asyncio.to_thread(self._invite, node.labels)


async def down(pool: Pool, node: Node, say: Say, *, anyway: bool) -> Outcome:
    """Remove a host from the cluster: stop its workers, and revoke their tokens. Raises HostTrouble."""
    host = _Checkout(pool, node)
    if not await host.find():
        return Outcome(name=node.name, state="not joined", detail="nothing is installed there")
    if not (await host.read_state("state"))["joined"]:
        return Outcome(name=node.name, state="not joined")
    say(node, "is leaving; its workers return their leases")
    await host.run("leave", *(["--anyway"] if anyway else []))
    return Outcome(name=node.name, state="down")


def _options(node: Node) -> list[str]:
    """Return the command-line options with which a host joins the cluster."""
    flags = [f"--{name}" for name in ("gpu", "runner") if getattr(node, name)]
    labels = ["--labels", ",".join(node.labels)] if node.labels and node.runner else []
    return ["--name", node.name, "--workers", str(node.workers), *flags, *labels]


def _detail(state: dict[str, Any]) -> str:
    joined = state["joined"]
    return f"{joined['name']} with {len(joined['workers'])} worker(s) for {joined['url']}"


class _Checkout:
    """Checkout of this project on a host."""

    def __init__(self, pool: Pool, node: Node) -> None:
        self._pool, self._node = pool, node
        self.folder = ""

    @property
    def python(self) -> str:
        """Return the path of the Python in the checkout's environment."""
        return self._node.python or posixpath.join(self.folder, ".venv/bin/python")

    async def find(self) -> bool:
        """Find the checkout on the host, and set `folder`. Return False if there is none."""
        async with self._pool.channel(self._node) as connection, connection.start_sftp_client() as sftp:
            around = self._pool.config.root(self._node)
            home = await sftp.realpath(".") if around.startswith("~/") else ""
            self.folder = posixpath.join(home, around.removeprefix("~/"), FOLDER)
            return bool(await sftp.exists(posixpath.join(self.folder, "deploy/local/joining/background_join.py")))

    async def running_state(self) -> dict[str, Any] | None:
        """Return the state of the host if it has joined and is running. Otherwise, return None."""
        with suppress(HostTrouble):
            if await self.find() and (state := await self.read_state("state"))["joined"] and state["running"]:
                return state
        return None

    async def install(self, group: str) -> None:
        """Create the Python environment on the host. Raises HostTrouble with its output on failure.

        Ctrl-C stops the installation on the host, too.
        """
        program = Program(words=["deploy/environment.sh", group], folder=self.folder)
        remote = Remote(self._pool, self._node, program)
        said = b""
        try:
            await remote.start()
            while (piece := await remote.piece()) is not None:
                said = (said + piece[1])[-_KEPT:]
            code = await remote.code()
        finally:
            await remote.leave()
        if code:
            raise self._failed(f"deploy/environment.sh {group}", code, said)

    async def run(self, *words: str, line: str = "") -> bytes:
        """Run deploy.local on the host, and return its stdout. `line` is its stdin.

        The command can start background processes. Raises HostTrouble with its output on failure.
        """
        command = f"cd {shlex.quote(self.folder)} && exec {shell_path(self.python)} -m deploy.local {shlex.join(words)}"
        try:
            async with asyncio.timeout(_SECONDS), self._pool.channel(self._node) as connection:
                done = await connection.run(command, input=f"{line}\n".encode(), encoding=None)
        except TimeoutError:
            raise HostTrouble(self._node, f"{words[0]} did not finish within {_SECONDS:g} s", self._look) from None
        if done.exit_status != 0:
            raise self._failed(words[0], done.exit_status, done.stderr)
        return bytes(done.stdout)

    def _failed(self, what: str, code: Any, said: bytes) -> HostTrouble:
        text = said[-_SHOWN:].decode(errors="replace").strip().removeprefix("error: ").replace("\n", "; ")
        return HostTrouble(self._node, f"{what} failed with exit code {code}: {text}", self._look)

    @property
    def _look(self) -> str:
        return f"check {self.folder} on {self._node.name}"

    async def read_state(self, *words: str, line: str = "") -> dict[str, Any]:
        """Return the state that a command of deploy.local prints as JSON."""
        said = await self.run(*words, line=line)
        with suppress(ValueError, IndexError):
            answer = json.loads(said.splitlines()[-1])
            if isinstance(answer, dict) and {"joined", "running"} <= answer.keys():
                return answer
        raise HostTrouble(self._node, f"unexpected output of deploy.local: {said[:100]!r}", self._look)
