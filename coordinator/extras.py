"""Check the optional packages that some settings require."""

from __future__ import annotations

import importlib
import logging

from jobs.settings import Settings

log = logging.getLogger(__name__)

_GRPC = ("GRPC_PORT", "grpc", "grpc.aio")
TRACING = ("OTEL_EXPORTER_OTLP_ENDPOINT", "tracing", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
#: Commands that install a group of packages in a local cluster.
_LOCAL_COMMANDS = {"tracing": "in a local cluster, start it with cluster start --tracing; elsewhere, "}


class MissingPackages(Exception):
    """A setting requires packages that are missing or broken. The message contains an installation command."""


def check(settings: Settings) -> None:
    """Raise MissingPackages if GRPC_PORT is set and the gRPC packages are not installed."""
    if settings.grpc_port:
        _require(*_GRPC)


def drop_unusable(settings: Settings) -> Settings:
    """Return the settings. If packages for span export are missing, log a warning and disable span export.

    This is not an error, because the environment variable may be meant for other programs, and no job needs spans.
    """
    try:
        if settings.otel_exporter_otlp_endpoint:
            _require(*TRACING)
    except MissingPackages as error:
        log.warning("span export is disabled: %s", error)
        return settings.model_copy(update={"otel_exporter_otlp_endpoint": ""})
    return settings


def _require(setting: str, group: str, module: str) -> None:
    remedy = f"{_LOCAL_COMMANDS.get(group, '')}pip install --require-hashes -r requirements/{group}.txt; or unset it"
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise MissingPackages(f"{setting} is set, and {error.name} is not installed: {remedy}") from error
    except Exception as error:  # incompatible versions of packages raise various errors
        reason = next(iter(str(error).splitlines()), "")
        raise MissingPackages(
            f"{setting} is set, and {module} cannot be imported ({type(error).__name__}: {reason}): {remedy}"
        ) from error
