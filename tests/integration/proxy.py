"""A TCP proxy that falls silent: established connections stay open and carry nothing more, new ones work."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class SilentProxy(threading.Thread):
    """Forwards 127.0.0.1:`port` to a port of this machine."""

    def __init__(self, target: int) -> None:
        super().__init__(name="proxy", daemon=True)
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._silenced: list[socket.socket] = []
        self._turning = threading.Lock()
        self._ended = False

    def run(self) -> None:
        while not self._ended:
            ready = self._selector.select(0.1)
            with self._turning:
                for key, _ in ready:
                    self._serve(key.fileobj)

    def _serve(self, source: object) -> None:
        if source is self._listener:
            ours, _ = self._listener.accept()
            theirs = socket.create_connection(("127.0.0.1", self._target))
            self._peers |= {ours: theirs, theirs: ours}
            for end in (ours, theirs):
                self._selector.register(end, selectors.EVENT_READ)
        elif isinstance(source, socket.socket) and source in self._peers:
            data = b""
            with contextlib.suppress(OSError):
                data = source.recv(65536)
            if data:
                self._peers[source].sendall(data)
            else:
                self._hang_up(source)

    def _hang_up(self, end: socket.socket) -> None:
        for one in (end, self._peers.pop(end)):
            self._peers.pop(one, None)
            self._selector.unregister(one)
            one.close()

    def silence(self) -> int:
        """Half-open from now on: what is sent is never read, and neither end hears that. How many connections."""
        with self._turning:
            for end in self._peers:
                self._selector.unregister(end)
            self._silenced += self._peers
            self._peers.clear()
        return len(self._silenced) // 2

    def stop(self) -> None:
        self._ended = True
        self.join()
        for end in [*self._peers, *self._silenced, self._listener]:
            end.close()
        self._selector.close()
