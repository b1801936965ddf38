"""Search an httpx exception for the operating system or TLS error that caused it."""

from __future__ import annotations


def system_error(error: BaseException) -> OSError | None:
    """Return the first operating system or TLS error in an exception chain, or None if there is none.

    A plain OSError without an errno was raised by a library, so it is skipped. `__context__` is searched too, because
    httpcore clears `__cause__`.
    """
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, OSError) and (each.errno or type(each) is not OSError):
            return each
        each = each.__cause__ or each.__context__
    return None
