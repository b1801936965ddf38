"""gRPC server in a coordinator's event loop, which runs if GRPC_PORT is set."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError
from starlette.types import ASGIApp

from coordinator.rpc import cluster_pb2 as messages
from coordinator.rpc.service import Service
from coordinator.server.bodies import MAX_BODY
from jobs.settings import Settings

log = logging.getLogger(__name__)

NAME = "threads_cluster.v1.Cluster"
#: Maximum number of concurrent calls in total.
#: Maximum number of concurrent calls per connection.
#: Maximum size of a request in bytes.
#: Maximum size of a request's metadata in bytes.
MAX_CALLS, MAX_CALLS_EACH, MAX_MESSAGE, MAX_METADATA = 1024, 128, MAX_BODY + (64 << 10), 16 << 10
#: Seconds that calls have to finish at shutdown.
#: Interval in seconds between keepalive pings.
GRACE_SECONDS, ALIVE_SECONDS = 1.0, 30

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", MAX_METADATA),
    ("grpc.max_concurrent_streams", MAX_CALLS_EACH),
    ("grpc.keepalive_time_ms", ALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", ALIVE_SECONDS * 1000 // 2),
    # Without this option, a second process could listen on the same port.
    ("grpc.so_reuseport", 0),
)


class PortTaken(OSError):
    """The server cannot listen on GRPC_PORT."""


async def serve(app: ASGIApp, settings: Settings) -> Callable[[], Awaitable[None]]:
    """Start the server, and return a function that stops it. Raises PortTaken."""
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
    server.add_generic_rpc_handlers((handlers(Service(app)),))
    place = f"{_bracket_ipv6(settings.bind)}:{settings.grpc_port}"
    try:
        if settings.tls_certificate:
            server.add_secure_port(place, _credentials(settings))
        else:
            server.add_insecure_port(place)
    except RuntimeError as error:
        raise PortTaken(f"cannot listen on GRPC_PORT={settings.grpc_port} at {settings.bind}: {error}") from None
    await server.start()
    log.info("gRPC on %s", place)

    async def stop() -> None:
        await server.stop(GRACE_SECONDS)

    return stop


def handlers(service: Service) -> Any:
    """Return the service's calls as a handler for the gRPC server."""
    one, many = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    calls: dict[str, tuple[Any, Any, Any]] = {
        "Submit": (one, service.submit, messages.SubmitRequest),
        "GetJob": (one, service.get_job, messages.JobRequest),
        "GetResult": (one, service.get_result, messages.JobRequest),
        "Cancel": (one, service.cancel, messages.JobRequest),
        "GetStatus": (one, service.get_status, messages.StatusRequest),
        "StreamEvents": (many, service.stream_events, messages.EventsRequest),
        "StreamMetrics": (many, service.stream_metrics, messages.MetricsRequest),
    }
    made = {
        name: kind(_unary_handler(call) if kind is one else _stream_handler(call), _reader(asked), _encode)
        for name, (kind, call, asked) in calls.items()
    }
    return grpc.method_handlers_generic_handler(NAME, made)


def _reader(asked: Any) -> Callable[[bytes], Any]:
    """Return a parser for a message type. The parser returns None for invalid bytes instead of raising."""

    def read(octets: bytes) -> Any:
        try:
            return asked.FromString(octets)
        except DecodeError:
            return None

    return read


def _encode(answer: Any) -> bytes:
    octets: bytes = answer.SerializeToString()
    return octets


def _unary_handler(call: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def checked(request: Any, context: Any) -> Any:
        await _check(request, context)
        return await call(request, context)

    return checked


def _stream_handler(call: Callable[[Any, Any], AsyncIterator[Any]]) -> Callable[[Any, Any], AsyncIterator[Any]]:
    async def checked(request: Any, context: Any) -> AsyncIterator[Any]:
        await _check(request, context)
        async with aclosing(cast(AsyncGenerator[Any, None], call(request, context))) as answers:
            async for answer in answers:
                yield answer

    return checked


async def _check(request: Any, context: Any) -> None:
    if request is None:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is not a message of cluster.proto")


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _credentials(settings: Settings) -> Any:
    """Return the TLS credentials of the API. New connections use a renewed certificate."""

    def read() -> Any:
        pair = (Path(settings.tls_key).read_bytes(), Path(settings.tls_certificate).read_bytes())
        return grpc.ssl_server_certificate_configuration([pair])

    def fetch() -> Any:
        try:
            return read()
        except OSError as error:
            log.error("the renewed certificate cannot be read: %s", error)
            return None

    return grpc.dynamic_ssl_server_credentials(read(), fetch, require_client_authentication=False)
