"""Profiles: recordings of the telemetry of hosts and devices, which become one artifact."""
