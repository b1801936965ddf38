"""Errors in texts from another process. Callers convert the errors into their own exceptions."""

from __future__ import annotations


class MalformedText(ValueError):
    """A text does not have the required format. The message contains the position of the error."""


class TooLarge(MalformedText):
    """A text is larger than its format allows."""
