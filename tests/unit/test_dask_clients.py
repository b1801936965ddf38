"""Tests Dask clients from the cluster's Python client: their requests, and errors without a service."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from threads_cluster.client import dask_clients
from threads_cluster.client.dask_clients import NotReached, connected
from threads_cluster.errors import ApiError, BadArgument, TimedOut

OWN = ".".join(map(str, sys.version_info[:3]))


class Services:
    """Fake services whose leading replica answers on a port."""

    def __init__(self, port: int, late: int = 0) -> None:
        self.port, self.late = port, late
        self.calls: list[tuple[str, Any]] = []

    def serve(self, name: str, engine: str, **more: Any) -> None:
        self.calls.append(("serve", (engine, more["replicas"], more["parameters"])))
        self.name = name

    def wait(self, name: str, timeout: float) -> None:
        assert name == self.name and timeout > 0

    def delete(self, name: str) -> None:
        self.calls.append(("delete", name == self.name))

    def access(self, name: str) -> Any:
        if self.late:
            self.late -= 1
            raise ApiError(503, {"detail": "no replica leads yet"})
        self.calls.append(("access", name))
        return {"address": "127.0.0.1", "port": self.port, "certificate": "C", "private_key": "K"}


class Client:
    """Fake Dask client."""

    python = OWN
    made: Any = None

    def __init__(self, address: str, *, security: Any, timeout: float) -> None:
        type(self).made = (address, security, timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        type(self).made = None

    def get_versions(self) -> Any:
        one = {"host": {"python": f"{self.python}.final.0"}}
        return {"scheduler": one, "workers": {"a": one, "b": None}}


@pytest.fixture
def dask(monkeypatch: pytest.MonkeyPatch) -> None:
    known = SimpleNamespace(Client=Client, security=SimpleNamespace(Security=lambda **how: how))
    monkeypatch.setitem(sys.modules, "distributed", known)
    monkeypatch.setattr(dask_clients, "STEP_SECONDS", 0.001)


@contextmanager
def answering(text: str, status: int = 200) -> Iterator[int]:
    class Answer(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            assert self.path == "/address"
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


def of(services: Services) -> Any:
    return SimpleNamespace(services=services)


@pytest.mark.usefixtures("dask")
def test_workers_are_served_for_a_block_and_deleted_whatever_happens_in_it() -> None:
    with answering("tls://127.0.0.1:1") as port:
        services = Services(port, late=3)
        made: list[Any] = []
        with suppress(KeyError), connected(of(services), 3, None, threads=2):
            made += Client.made
            raise KeyError
        address, security, timeout = made
        assert address == "tls://127.0.0.1:1" and 0 < timeout <= 300 and security["require_encryption"]
        assert (security["tls_client_cert"], security["tls_client_key"]) == ("C", "K")
        parameters = {"threads": 2, "memory_mib": 0}
        assert services.calls == [("serve", ("dask", 3, parameters)), ("access", services.name), ("delete", True)]
        assert Client.made is None, "it is closed"


@pytest.mark.usefixtures("dask")
def test_those_of_a_service_stay() -> None:
    with answering("tls://[::1]:1") as port:
        services = Services(port)
        with connected(of(services), 4, "kept"):
            pass
        assert services.calls == [("access", "kept")]


@pytest.mark.usefixtures("dask")
@pytest.mark.parametrize(("text", "status"), [("tcp://127.0.0.1:1", 200), ("", 404), ("<html>", 200)])
def test_what_names_no_scheduler_is_not_asked_further(text: str, status: int) -> None:
    with (
        answering(text, status) as port,
        pytest.raises(NotReached, match="without an address") as refused,
        connected(of(Services(port)), 1, "kept"),
    ):
        pass
    assert "SERVICE_ADDRESS" in refused.value.next and Client.made is None


@pytest.mark.usefixtures("dask")
def test_a_replica_that_is_gone_or_never_leads_is_said() -> None:
    with answering("") as port:
        pass
    with pytest.raises(NotReached, match="cannot be reached"), connected(of(Services(port)), 1, "kept"):
        pass
    with pytest.raises(TimedOut, match="leads yet"), connected(of(Services(1, late=9**9)), 1, "kept", timeout=0.05):
        pass


@pytest.mark.usefixtures("dask")
def test_functions_do_not_travel_between_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "python", "3.9.1")
    with (
        answering("tls://127.0.0.1:1") as port,
        pytest.raises(BadArgument, match=r"the workers have Python 3\.9,"),
        connected(of(Services(port)), 1, "kept"),
    ):
        pass


def test_without_the_package_or_a_number_of_workers_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    services = Services(1)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BadArgument, match="not installed") as refused, connected(of(services), 1, None):
        pass
    assert "threads-cluster[dask]" in refused.value.next
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace())
    for workers in (0, -1, True, "4", 1.5):
        with pytest.raises(BadArgument, match="at least 1"), connected(of(services), workers, None):  # type: ignore[arg-type]
            pass
    assert services.calls == []
