"""Tests the host names of services' pages: to whom they belong, and which names are invalid."""

from __future__ import annotations

import pytest

from coordinator.services.pages.page_names import PageNames
from jobs import errors
from jobs.settings import Settings
from jobs.store.services import Service

ID = "0123456789ab"
NAMES = PageNames("apps.example")


def service(name: str = "dask") -> Service:
    return Service(service_id=ID, tenant="default", name=name, engine="dask")


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ("127.0.0.1:3000", f"dask-{ID}.localhost:3000"),
        ("localhost", f"dask-{ID}.localhost"),
        ("[::1]:80", f"dask-{ID}.localhost:80"),
        ("cluster.example", f"dask-{ID}.apps.example"),
        ("cluster.example:8443", f"dask-{ID}.apps.example:8443"),
        ("10.0.0.7:3000", f"dask-{ID}.apps.example:3000"),
    ],
)
def test_a_name_has_the_port_and_reach_of_the_one_that_was_asked(asked: str, there: str) -> None:
    authority = NAMES.authority(service(), asked)
    assert authority == there and NAMES.service_id(authority) == NAMES.service_id(authority.upper()) == ID


def test_a_long_name_stays_a_label_of_dns() -> None:
    label = NAMES.authority(service("a" * 49 + "-" + "b" * 13), "localhost").partition(".")[0]
    assert len(label) <= 63 and label == f"{'a' * 49}-{ID}"


@pytest.mark.parametrize(
    "authority",
    [
        "localhost",
        "127.0.0.1:3000",
        f"{ID}.localhost",
        f"-{ID}.localhost.",
        f"dask-{ID}",
        f"dask-{ID}.example",
        f"dask-{ID}.localhost.example",
        f"dask-{ID}.x.localhost",
        f"dask-{ID}.apps.example.org",
        f"dask-{ID}0.localhost",
        f"dask-{ID[:-1]}g.localhost",
        f"dask-{ID}.localhost:80:80",
        f"dask-{ID}.localhost/x",
        f"dask_{ID}.localhost",
        "",
        f"dask-{ID}.apps-example",
    ],
)
def test_other_names_are_no_pages(authority: str) -> None:
    assert NAMES.service_id(authority) in ("", ID if authority == f"-{ID}.localhost." else "")


def test_without_a_domain_a_network_has_no_names_and_loopback_has() -> None:
    names = PageNames("")
    with pytest.raises(errors.Conflict, match="set SERVICES_DOMAIN"):
        names.authority(service(), "cluster.example:443")
    assert names.service_id(f"dask-{ID}.") == names.service_id(f"dask-{ID}") == ""
    assert names.service_id(names.authority(service(), "localhost:3000")) == ID


@pytest.mark.parametrize("domain", ["Apps.example", ".example", "a..b", "a.example.", "a b", "*.example", "a" * 181])
def test_what_is_no_domain_is_refused(domain: str) -> None:
    with pytest.raises(ValueError, match="services_domain"):
        Settings(services_domain=domain)
