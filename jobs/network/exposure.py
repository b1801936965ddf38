"""Checks that the API and the metrics of a server are not accessible to strangers without a token."""

from __future__ import annotations

import re
from ipaddress import ip_address

from jobs.settings import Settings

#: Exit code of a process that rejects its settings as unsafe.
REFUSED = 2
_AUTHORITY = re.compile(r"([^:@\[\]]+|\[[0-9a-f:.]+\])(:\d*)?")


class ExposureError(Exception):
    """Strangers could access the API or the metrics without a token. The message lists all remedies."""


def host_name(authority: str) -> str:
    """Return the lower-case host of `name`, `name:port` or `[address]:port`. Return "" for any other form."""
    parts = _AUTHORITY.fullmatch(authority.strip().lower())
    return parts[1].strip("[]").removesuffix(".") if parts else ""


def is_loopback(name: str) -> bool:
    """Return True if a host name or address always refers to this machine."""
    name = name.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """Return the host names that the setting ALLOWED_HOSTS contains."""
    return frozenset(filter(None, map(host_name, settings.allowed_hosts.split(","))))


def needs_token(settings: Settings) -> bool:
    """Return True if the API requires a token because of AUTH, CLUSTER_TOKEN, or access from a network."""
    return settings.auth != "auto" or bool(settings.cluster_tokens()) or not _published_on_loopback(settings)


def accepts_guests(settings: Settings) -> bool:
    """Return True if requests without a token can submit compiled kinds, although all other requests need a token."""
    return settings.auth == "guest" and not settings.cluster_tokens() and _published_on_loopback(settings)


def _published_on_loopback(settings: Settings) -> bool:
    where = settings.published or settings.bind
    return where == "loopback" or is_loopback(where)


def check_api(settings: Settings) -> None:
    """Raise ExposureError if strangers could access the API without a token."""
    if settings.auth != "required" and not settings.cluster_tokens() and not _published_on_loopback(settings):
        where = settings.published or settings.bind
        raise ExposureError(
            f"anyone who reaches the API at {where} could control the cluster, because no token is required:"
            " set CLUSTER_TOKEN (openssl rand -hex 24), or AUTH=required if API tokens exist, or"
            " BIND=127.0.0.1; in a container, publish the port on"
            " loopback (-p 127.0.0.1:3000:3000) and set PUBLISHED=loopback"
        )


def check_metrics(settings: Settings) -> None:
    """Raise ExposureError if strangers could read the metrics without a token."""
    where = settings.metrics_published or settings.published or settings.bind
    closed = where in ("loopback", "internal") or is_loopback(where)
    if settings.metrics_port and not settings.metrics_token and not closed:
        raise ExposureError(
            f"anyone who reaches {where} could read the metrics on port {settings.metrics_port} without a token: set"
            " METRICS_TOKEN, METRICS_PORT=0 or BIND=127.0.0.1; if only a private network reaches them, as in"
            " a container that does not publish the port, set METRICS_PUBLISHED=internal"
        )


def check(settings: Settings) -> None:
    """Check the API and the metrics. Raises ExposureError with all problems in one message."""
    complaints = []
    for one in (check_api, check_metrics):
        try:
            one(settings)
        except ExposureError as error:
            complaints.append(str(error))
    if complaints:
        raise ExposureError("; and ".join(complaints))
