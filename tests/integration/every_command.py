"""Program that runs every command of `cluster` beside a stand-in on port 3000, in a network of its own.

    unshare --net --map-root-user python -m tests.integration.every_command CHECKOUT_FOLDER

Prints as JSON the exit code and the messages of each command, and the number of connections to the stand-in.
"""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from threads_cluster import settings
from threads_cluster.cli import main as cli
from threads_cluster.cli.commands import server_commands

PORT = 3000
#: Arguments of commands whose argument cannot be just any text.
_ARGUMENTS = {
    "artifact put": ["work.py"],
    "attach": ["job"],
    "logs": ["job"],
    "profile analyze": ["name"],
    "map": ["work:square", "1..3"],
    "run": ["--no-files", "--", "true"],
    "schedule add": ["name", "--every", "1h", "--", "submit", "collatz", "--start-number", "1", "--number-count", "1"],
    "serve": ["work.py"],
    "service scale": ["name", "2"],
    "submit": ["collatz", "--start-number", "1", "--number-count", "1"],
    "workflow submit": ["flow.yaml"],
    "workflow validate": ["flow.yaml"],
    "discover": ["--seconds", "0.1"],
}
#: Valid values of parameters by name.
_VALUES = {"file": "work.py", "chunk": "chunk-012345678901"}


class StandIn:
    """Servers on port 3000 of IPv4 and IPv6 that count the connections and close them."""

    def __init__(self) -> None:
        self.connections = 0
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            server = socket.socket(family, socket.SOCK_STREAM)
            if family == socket.AF_INET6:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            server.bind((address, PORT))
            server.listen(100)
            threading.Thread(target=self._accept, args=(server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            accepted, _ = server.accept()
            self.connections += 1
            accepted.close()


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, list[str]]]:
    """Yield the words of each command, and valid arguments. The subcommands of `submit` come from the cluster."""
    subcommands = getattr(command, "commands", {})
    for name, each in subcommands.items():
        if name in server_commands.NAMES and not path:  # it replaces this process by a script
            continue
        yield from leaves(each, (*path, name))
    if not subcommands:
        words = " ".join(path)
        required = [each for each in command.params if each.required]
        yield words, _ARGUMENTS.get(words) or [word for each in required for word in _value(each)]


def _value(parameter: Any) -> list[str]:
    flag = parameter.opts[:1] if parameter.param_type_name == "option" else []
    return [*flag, _VALUES.get(parameter.name, "name")]


def run(words: list[str]) -> tuple[int, str]:
    """Run a command, and return its exit code and its messages."""
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"token\n"))
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as messages:
        try:
            cli.main(words)
        except SystemExit as ended:
            return int(ended.code or 0), messages.getvalue()


def main() -> None:
    settings.LOCAL_FOLDER = Path(sys.argv[1])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("work.py").write_text("def square(n):\n    return n * n\n")
    Path("flow.yaml").write_text("name: one\nactions: [{action_id: a, action_type: command, command: ['true']}]\n")
    stand_in = StandIn()
    ran = {words: run([*words.split(), *arguments]) for words, arguments in leaves(cli.commands())}
    before = stand_in.connections
    run(["--url", f"http://127.0.0.1:{PORT}", "status"])
    print(json.dumps({"ran": ran, "connections": before, "chosen": stand_in.connections - before}))


if __name__ == "__main__":
    main()
