"""For processes under libfaketime, loaded by their start: it fails a sleep whose end passes before it begins."""

import time

_sleep = time.sleep


def sleep(seconds: float) -> None:
    end = time.monotonic() + seconds
    try:
        _sleep(seconds)
    except OSError:
        while time.monotonic() < end:
            pass


time.sleep = sleep
