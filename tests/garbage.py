"""Garbage collection within a test."""

from __future__ import annotations

import gc
import warnings


def collect() -> None:
    """Collect garbage, including unclosed resources of earlier tests, which must not fail the current test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
