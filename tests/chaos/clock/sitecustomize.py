"""For processes under libfaketime, loaded by their start: it fails every sleep of Python's, but no wait of select's."""

import select
import time


def sleep(seconds: float) -> None:
    select.select((), (), (), seconds)


time.sleep = sleep
