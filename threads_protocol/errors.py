"""Errors in text received from another process. Callers convert them into their own exceptions."""

from __future__ import annotations


class MalformedText(ValueError):
    """The text violates its format. The message says where."""


class TooLarge(MalformedText):
    """The text exceeds the size limit of its format."""
