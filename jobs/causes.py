"""Find the operating system or TLS error behind an httpx exception."""

from __future__ import annotations


def system_error(error: BaseException) -> OSError | None:
    """Return the first operating system or TLS error in an exception chain, or None if there is none.

    A plain OSError without an errno was raised by a library, so it is skipped. Search `__context__` too, because
    httpcore clears `__cause__`.
    """
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, OSError) and (each.errno or type(each) is not OSError):
            return each
        each = each.__cause__ or each.__context__
    return None
