"""Daemon that keeps SSH connections open for the next command. It runs one `cluster run --on ssh` at a time.

A command runs in the daemon with the environment, the working directory, stdout and stderr of its client. The daemon
exits `ssh.persist` seconds after its last command. `daemon_client` describes the protocol.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from threads_cluster import settings, terminal
from threads_cluster.cli import main as cli
from threads_cluster.ssh import daemon_client
from threads_cluster.ssh.hosts import Hosts, KeptConnections

#: Timeout in seconds for receiving a command from a client that has connected.
_REQUEST_SECONDS = 20.0


def main(path: str, descriptor: str) -> None:
    """Serve a client on an inherited socket, and then all clients that connect to the socket at `path`."""
    os.chdir("/")
    daemon_client.is_daemon = True
    # A background job of a shell ignores SIGINT. An interrupt stops the current command, or else the daemon.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        Daemon(Path(path)).serve(socket.socket(fileno=int(descriptor)))


class Daemon:
    """Accepts clients in a thread, and runs their commands in the main thread, which receives signals."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener = _listen(path)
        self._inode = path.stat().st_ino
        self._connections = Hosts.kept = KeptConnections()
        self._clients = queue.SimpleQueue[socket.socket]()
        #: Held while a command is running. The daemon then rejects other clients.
        self._busy = threading.Lock()

    def serve(self, first: socket.socket) -> None:
        """Serve clients until no command has run for a while."""
        self._offer(first)
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            while client := self._next():
                with client:
                    serve_client(client)
                if _has_children():  # A ProxyCommand would keep stderr of the client open
                    self._connections.close()
                self._busy.release()
        finally:
            self._end()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            self._offer(client)

    def _offer(self, client: socket.socket) -> None:
        if _user(client) == os.getuid() and self._busy.acquire(blocking=False):
            self._clients.put(client)
        else:
            client.close()

    def _next(self) -> socket.socket | None:
        """Return the next client, or None if there was none for the configured time."""
        try:
            return self._clients.get(timeout=self._connections.persist_seconds)
        except queue.Empty:
            return None if self._busy.acquire(blocking=False) else self._clients.get()

    def _end(self) -> None:
        """Close the connections, and remove the socket unless another daemon has replaced it."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
            for folder in (self._path.parent, self._path.parent.parent):  # Remove the folders if they are empty
                folder.rmdir()
        self._connections.close()


def _listen(path: Path) -> socket.socket:
    """Listen at a path. The socket of a killed daemon is replaced."""
    listener = socket.socket(socket.AF_UNIX)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    listener.bind(str(new))
    new.chmod(0o600)
    listener.listen()
    new.rename(path)
    return listener


def _user(client: socket.socket) -> int:
    """Return the user ID of the client process."""
    _, user, _ = struct.unpack("iII", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))
    return int(user)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def serve_client(client: socket.socket) -> None:
    """Receive a command, run it, and reply with its exit code. Interrupt the command if the client disconnects."""
    client.settimeout(_REQUEST_SECONDS)
    with contextlib.suppress(OSError, ValueError), contextlib.ExitStack() as opened:
        client.sendall(b"!")
        size, descriptors, _, _ = socket.recv_fds(client, 8, 3)
        for descriptor in descriptors:
            opened.callback(os.close, descriptor)
        arguments, environment = json.loads(_receive(client, int.from_bytes(size)))
        client.settimeout(None)
        with _interrupts(client), _as_client(descriptors, environment):
            code = cli.run_command(["run", *arguments])
        client.sendall(bytes([code]))


def _receive(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = client.recv(size - len(data))
        if not piece:
            raise ConnectionError("the client has disconnected")
        data += piece
    return bytes(data)


@contextlib.contextmanager
def _interrupts(client: socket.socket) -> Iterator[None]:
    """Deliver the signals that the client receives to the main thread, and SIGTERM if the client disconnects."""
    main_thread, ended = threading.main_thread().ident or 0, threading.Event()

    def deliver() -> None:
        number = b"any"
        while number and not ended.is_set():
            try:
                number = client.recv(1)
            except OSError:
                number = b""
            if not ended.is_set():
                signal.pthread_kill(main_thread, number[0] if number else signal.SIGTERM)

    thread = threading.Thread(target=deliver, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RD)
        thread.join()


@contextlib.contextmanager
def _as_client(descriptors: list[int], environment: dict[str, str]) -> Iterator[None]:
    """Use the output, the working directory and the environment of a client."""
    stdout, stderr, folder = descriptors
    before = sys.stdout, sys.stderr
    os.fchdir(folder)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - a stream for another kind of file behaves differently
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    try:
        with settings.replaced_environment(environment):
            yield
    finally:
        os.chdir("/")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
            terminal.discard(stream)  # Otherwise, a pipe of the client would stay open
        sys.stdout, sys.stderr = before
