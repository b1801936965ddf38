"""For processes under libfaketime, loaded by their start: it fails every sleep of Python's, but no wait of select's."""

import select
import time
from typing import SupportsIndex


def sleep(seconds: float | SupportsIndex) -> None:
    select.select((), (), (), float(seconds))


time.sleep = sleep
