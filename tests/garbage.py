"""Collection of garbage within a test."""

from __future__ import annotations

import gc
import warnings


def collect() -> None:
    """Collect garbage, also what tests before this one have left to be closed: this one is not to blame for that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
