"""Connections to Redis, its library of functions, and its append-only file."""
