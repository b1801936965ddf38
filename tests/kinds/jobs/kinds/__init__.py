"""Kinds for tests only; see jobs/__init__.py."""
