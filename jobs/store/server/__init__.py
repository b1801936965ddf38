"""Connections to Redis, the function library, and the append-only file."""
