"""Shared code of all workers: process lifecycle, lanes, heartbeats and measurements."""
