"""Tests which pages can use a login cookie."""

from __future__ import annotations

import pytest
from fastapi import Request

from coordinator.access import cookies
from jobs import errors


def asked(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "scheme": "http", "path": "/", "headers": raw})


@pytest.mark.parametrize("origin", ["http://c.test:80", "HTTPS://C.test:80", ""])
def test_a_page_of_the_same_host_and_port_may(origin: str) -> None:
    cookies.check_origin(asked(host="c.test:80", origin=origin))


@pytest.mark.parametrize(
    "origin", ["null", "c.test", "x://c.test", "http://c.test.evil", "http://c.test@evil", "http://c.test/", "//c.test"]
)
def test_no_other_page_may(origin: str) -> None:
    with pytest.raises(errors.Forbidden):
        cookies.check_origin(asked(host="c.test", origin=origin))


def test_a_page_that_came_without_tls_may_not_where_tls_is_used() -> None:
    """An attacker in the network could replace a page that was loaded without TLS."""
    cookies.check_origin(asked(host="c.test", origin="https://c.test", x_forwarded_proto="https"))
    with pytest.raises(errors.Forbidden):
        cookies.check_origin(asked(host="c.test", origin="http://c.test", x_forwarded_proto="https"))
