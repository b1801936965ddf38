"""`cluster up` and `down`: hosts of cluster.yaml as hosts of the cluster that runs in this checkout."""

from __future__ import annotations

import asyncio
import json
import posixpath
import re
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

#: The checkout of this client.
CHECKOUT = Path(__file__).resolve().parents[2]
#: Its folder on a host, in remote_root.
FOLDER = "threads-cluster"
_INVITATION = re.compile(r"deploy-cluster\.sh join (\S+)")
#: Characters of what a step on a host said, where it failed; and bytes of its output that are kept.
_SHOWN, _KEPT = 600, 64 << 10
#: Seconds for one step of deploy.local on a host.
_SECONDS = 150.0
#: Hosts that are worked on at once.
_HOSTS = 16

#: Says what is done on a host.
Say = Callable[[Node, str], None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A host after `up` or `down`."""

    name: str
    #: up, already up, down, not joined, failed.
    state: str
    detail: str = ""
    advice: str = ""


def checkout() -> Tree:
    """Return the files of this checkout, as git lists them. ClientError where this is none."""
    if not (CHECKOUT / "deploy-cluster.sh").is_file():
        error = errors.Misconfigured("up needs a checkout of the cluster, which is sent to the hosts")
        error.next = "run it as .venv/bin/cluster where ./deploy-cluster.sh local runs"
        raise error
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise errors.Misconfigured(f"{CHECKOUT}: git does not list its files: {error}") from None
    names = [name for name in done.stdout.decode(errors="surrogateescape").split("\0") if name]
    return trees.listed(CHECKOUT, [name for name in names if (CHECKOUT / name).is_file()])


def invitation(address: str | None, labels: Sequence[str] = ()) -> str:
    """Return an invitation of the cluster that runs in this checkout, which counts once. ClientError.

    `labels`: those that the host gets which joins with it.
    """
    options = {"--address": address, "--labels": ",".join(labels)}
    given = [word for option, value in options.items() if value for word in (option, value)]
    command = [sys.executable, "-m", "deploy.local", "invite", *given]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    found = _INVITATION.search(done.stdout)
    if done.returncode or not found:
        error = errors.ClientError(visible(done.stderr.strip().removeprefix("error: "), _SHOWN))
        error.next = "hosts join the cluster of this checkout: ./deploy-cluster.sh local"
        raise error
    return found[1]


async def all_of(nodes: Sequence[Node], work: Callable[[Node], Awaitable[Outcome]]) -> list[Outcome]:
    """Return what became of each host, several at once; what goes wrong with one leaves the others alone."""
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
    """Installs and joins hosts. Used in the pool's event loop."""

    def __init__(self, pool: Pool, tree: Tree, say: Say, invite: Callable[[Sequence[str]], str]) -> None:
        self._pool, self._tree, self._say, self._invite = pool, tree, say, invite
        self._inviting = asyncio.Lock()

    async def up(self, node: Node) -> Outcome:
        """Have a host work for the cluster; one that does is left as it is. HostTrouble."""
        host = _Checkout(self._pool, node)
        if (state := await host.works()) is not None:
            return Outcome(name=node.name, state="already up", detail=_detail(state))
        self._say(node, "sends the checkout")
        sent = await self._sent(node)
        host.folder = sent.folder
        if not node.python:
            self._say(node, "installs what it needs; a minute or two at the first time")
            for group in ("local", *(["gpu-worker"] if node.gpu else [])):
                await host.install(group)
        before = await host.told("state")
        if before["running"]:
            advice = f"stop it there, in {host.folder}: ./deploy-cluster.sh stop"
            raise HostTrouble(node, "a cluster of its own runs in its checkout", advice)
        self._say(node, "starts its workers" if before["joined"] else "joins")
        line = "" if before["joined"] else await self._invited(node)
        after = await host.told("join-detached", *([] if before["joined"] else ["--", *_options(node)]), line=line)
        return Outcome(name=node.name, state="up", detail=_detail(after))

    async def _sent(self, node: Node) -> Synced:
        return await Sender(self._pool, node, self._tree, lambda _sent, _all: None, name=FOLDER).send()

    async def _invited(self, node: Node) -> str:
        async with self._inviting:  # each writes the files of the door
            return await asyncio.to_thread(self._invite, node.labels)


async def down(pool: Pool, node: Node, say: Say, *, anyway: bool) -> Outcome:
    """Have a host leave the cluster: its workers end, and so do their tokens. HostTrouble."""
    host = _Checkout(pool, node)
    if not await host.find():
        return Outcome(name=node.name, state="not joined", detail="nothing is installed there")
    if not (await host.told("state"))["joined"]:
        return Outcome(name=node.name, state="not joined")
    say(node, "leaves; its workers give back what they hold")
    await host.run("leave", *(["--anyway"] if anyway else []))
    return Outcome(name=node.name, state="down")


def _options(node: Node) -> list[str]:
    """Return the options with which a host joins."""
    flags = [f"--{name}" for name in ("gpu", "runner") if getattr(node, name)]
    labels = ["--labels", ",".join(node.labels)] if node.labels and node.runner else []
    return ["--name", node.name, "--workers", str(node.workers), *flags, *labels]


def _detail(state: dict[str, Any]) -> str:
    joined = state["joined"]
    return f"{joined['name']} with {len(joined['workers'])} worker(s) for {joined['url']}"


class _Checkout:
    """The checkout on a host."""

    def __init__(self, pool: Pool, node: Node) -> None:
        self._pool, self._node = pool, node
        self.folder = ""

    @property
    def python(self) -> str:
        """The Python of its environment."""
        return self._node.python or posixpath.join(self.folder, ".venv/bin/python")

    async def find(self) -> bool:
        """Tell whether it is there; sets its folder."""
        async with self._pool.channel(self._node) as connection, connection.start_sftp_client() as sftp:
            around = self._pool.config.root(self._node)
            home = await sftp.realpath(".") if around.startswith("~/") else ""
            self.folder = posixpath.join(home, around.removeprefix("~/"), FOLDER)
            return bool(await sftp.exists(posixpath.join(self.folder, "deploy/local/joining/detached.py")))

    async def works(self) -> dict[str, Any] | None:
        """Return its state where it has joined and runs; None where not, or where it cannot say."""
        with suppress(HostTrouble):
            if await self.find() and (state := await self.told("state"))["joined"] and state["running"]:
                return state
        return None

    async def install(self, group: str) -> None:
        """Make its environment. HostTrouble with what went wrong; a Ctrl-C ends it there, too."""
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
        """Return what deploy.local there prints; `line` is its stdin. HostTrouble with what it said where it failed.

        It may start what goes on.
        """
        command = f"cd {shlex.quote(self.folder)} && exec {shell_path(self.python)} -m deploy.local {shlex.join(words)}"
        try:
            async with asyncio.timeout(_SECONDS), self._pool.channel(self._node) as connection:
                done = await connection.run(command, input=f"{line}\n".encode(), encoding=None)
        except TimeoutError:
            raise HostTrouble(self._node, f"{words[0]} did not end within {_SECONDS:g} s", self._look) from None
        if done.exit_status != 0:
            raise self._failed(words[0], done.exit_status, done.stderr)
        return bytes(done.stdout)

    def _failed(self, what: str, code: Any, said: bytes) -> HostTrouble:
        text = said[-_SHOWN:].decode(errors="replace").strip().removeprefix("error: ").replace("\n", "; ")
        return HostTrouble(self._node, f"{what} ended with {code}: {text}", self._look)

    @property
    def _look(self) -> str:
        return f"look at {self.folder} on {self._node.name}"

    async def told(self, *words: str, line: str = "") -> dict[str, Any]:
        """Return the state that a command of deploy.local prints."""
        said = await self.run(*words, line=line)
        with suppress(ValueError, IndexError):
            answer = json.loads(said.splitlines()[-1])
            if isinstance(answer, dict) and {"joined", "running"} <= answer.keys():
                return answer
        raise HostTrouble(self._node, f"does not say whether it has joined: {said[:100]!r}", self._look)
