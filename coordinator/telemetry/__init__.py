"""Telemetry: history, spans of work, metrics and alerts."""
