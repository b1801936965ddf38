"""Exact numbers and JSON on the wire."""
