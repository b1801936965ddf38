"""Profiles: windows in which workers record the telemetry of hosts and devices; what they bring becomes an artifact."""
