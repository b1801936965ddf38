"""Connections to Redis, the library of Redis functions, and the append-only file."""
