"""Packages that only some settings need, and that are installed beside the others."""

from __future__ import annotations

import importlib

from jobs.settings import Settings


class MissingPackages(Exception):
    """A setting asks for what is not installed; the message says what to do."""


def check(settings: Settings) -> None:
    """Raise MissingPackages where a setting needs a package that is not installed."""
    needed = (
        ("OTEL_EXPORTER_OTLP_ENDPOINT", settings.otel_exporter_otlp_endpoint, "tracing",
         "opentelemetry.exporter.otlp.proto.http.trace_exporter"),
        ("GRPC_PORT", settings.grpc_port, "grpc", "grpc.aio"),
    )  # fmt: skip
    for name, value, group, module in needed:
        if value:
            _require(name, group, module)


def _require(setting: str, group: str, module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise MissingPackages(
            f"{setting} is set, and {error.name} is not installed: "
            f"pip install --require-hashes -r requirements/{group}.txt, or unset it"
        ) from error
