"""Loaded at the start of processes under libfaketime, which makes Python's sleep fail but not the waits of select."""

import select
import time
from typing import SupportsIndex


def sleep(seconds: float | SupportsIndex) -> None:
    select.select((), (), (), float(seconds))


time.sleep = sleep
