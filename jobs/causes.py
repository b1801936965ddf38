"""Causes of errors of httpx: the error of the system, or of TLS, from which one was made."""

from __future__ import annotations


def system_error(error: BaseException) -> OSError | None:
    """Return the first error of a chain that the system or TLS has raised; None if there is none.

    A plain OSError without a number is a library's own. The context is searched as well: httpcore removes the cause.
    """
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, OSError) and (each.errno or type(each) is not OSError):
            return each
        each = each.__cause__ or each.__context__
    return None
