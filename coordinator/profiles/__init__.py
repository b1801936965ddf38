"""Profiles: telemetry recordings of hosts and devices, stored as artifacts."""
