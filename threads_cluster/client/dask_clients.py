"""Dask clients that use workers in the cluster, as provided by `Cluster().dask()`."""

from __future__ import annotations

import contextlib
import importlib
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx

from threads_cluster.errors import ApiError, BadArgument, ClientError, TimedOut

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

Json: TypeAlias = dict[str, Any]

#: Name of the engine for Dask.
ENGINE = "dask"
#: Timeout in seconds of a request to the leading replica.
#: Interval in seconds between requests to the leading replica.
_ANSWER_SECONDS, STEP_SECONDS = 5.0, 0.25
_UNAVAILABLE = 503
_MOST_ADDRESS = 200


class NotReached(ClientError):
    """This machine cannot reach the Dask scheduler."""

    exit_code = 3


@contextlib.contextmanager
def connected(
    cluster: Cluster,
    workers: int,
    name: str | None,
    *,
    timeout: float = 300.0,
    threads: int = 1,
    memory_mib: int = 0,
    requirements: Mapping[str, Any] | None = None,
) -> Iterator[Any]:
    """Yield a Dask client with workers. Raises BadArgument, TimedOut, NotReached and the errors of `services`."""
    dask, until = _distributed(), time.monotonic() + timeout
    with contextlib.ExitStack() as held:
        if name is None:
            name = f"{ENGINE}-{secrets.token_hex(4)}"
            parameters = {"threads": threads, "memory_mib": memory_mib}
            cluster.services.serve(
                name, ENGINE, replicas=_count(workers), parameters=parameters, requirements=requirements
            )
            held.callback(cluster.services.delete, name)
            cluster.services.wait(name, timeout)
        client = held.enter_context(_client(dask, cluster, name, until))
        _check_python(client)
        yield client


def _count(workers: int) -> int:
    if type(workers) is not int or workers < 1:
        raise BadArgument(f"must be at least 1; got {workers!r}", "workers")
    return workers


def _distributed() -> Any:
    """Import the package `distributed`, which is optional for the client."""
    try:
        return importlib.import_module("distributed")
    except ImportError:
        error = BadArgument("the package distributed is not installed")
        error.next = "pip install 'threads-cluster[dask]', or in a checkout: pip install -r requirements/dask.txt"
        raise error from None


@contextlib.contextmanager
def _client(dask: Any, cluster: Cluster, name: str, until: float) -> Iterator[Any]:
    """Yield a Dask client for a service. The service's leading replica runs the Dask scheduler."""
    found = _access(cluster, name, until)
    certificate, key = found["certificate"], found["private_key"]
    security = dask.security.Security(
        tls_ca_file=certificate, tls_client_cert=certificate, tls_client_key=key, require_encryption=True
    )
    try:
        client = dask.Client(_address(found), security=security, timeout=max(1.0, until - time.monotonic()))
    except OSError as error:
        raise _not_reached(found, error) from None
    with client:
        yield client


def _access(cluster: Cluster, name: str, until: float) -> Json:
    """Return the address and the certificate of the leading replica. Wait until a replica leads."""
    while True:
        try:
            return cluster.services.access(name)
        except ApiError as error:
            if error.status != _UNAVAILABLE:
                raise
            if time.monotonic() > until:
                raise TimedOut(f"no replica of {name} is leading yet: {error}") from None
        time.sleep(STEP_SECONDS)


def _address(found: Mapping[str, Any]) -> str:
    """Return the address of the Dask scheduler, which the leading replica publishes over HTTP."""
    host = f"[{found['address']}]" if ":" in found["address"] else found["address"]
    try:
        with httpx.Client(trust_env=False, timeout=_ANSWER_SECONDS) as http:
            answer = http.get(f"http://{host}:{found['port']}/address")
    except httpx.HTTPError as error:
        raise _not_reached(found, error) from None
    text = answer.text[:_MOST_ADDRESS]
    if not text.startswith("tls://"):
        raise _not_reached(found, ValueError(f"the replica returned {answer.status_code} without an address"))
    return text


def _not_reached(found: Mapping[str, Any], error: Exception) -> NotReached:
    where = f"{found['address']}:{found['port']}"
    refused = NotReached(f"the scheduler at {where} cannot be reached: {str(error) or type(error).__name__}")
    refused.next = "set SERVICE_ADDRESS of the runners to an address that this machine can reach"
    return refused


def _check_python(client: Any) -> None:
    """Raise BadArgument if the workers have another Python version. Functions are sent to them as Python bytecode."""
    own = sys.version_info[:2]
    if other := sorted(_versions(client) - {own}):
        words = ", ".join(".".join(map(str, each)) for each in other)
        versions = f"the workers have Python {words}, but this machine has Python {own[0]}.{own[1]}"
        raise BadArgument(f"{versions}: functions cannot be sent between versions")


def _versions(client: Any) -> set[tuple[int, int]]:
    known = client.get_versions()
    several = [known["scheduler"], *known["workers"].values()]
    texts = [str(one["host"]["python"]).split(".") for one in several if one]
    return {(int(text[0]), int(text[1])) for text in texts}
