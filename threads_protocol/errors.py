"""Errors of texts from another process. Callers convert them into their own errors."""

from __future__ import annotations


class MalformedText(ValueError):
    """The text does not have the form that both sides agreed on; the message says where it differs."""


class TooLarge(MalformedText):
    """The text is larger than both sides agreed on."""
