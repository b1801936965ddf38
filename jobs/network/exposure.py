"""Who could reach what a process serves, by its settings; asked before it starts to listen."""

from __future__ import annotations

import re
from ipaddress import ip_address

from jobs.settings import Settings

#: Exit code of a process that refuses its settings.
REFUSED = 2
_AUTHORITY = re.compile(r"([^:@\[\]]+|\[[0-9a-f:.]+\])(:\d*)?")


class Exposed(Exception):
    """Strangers could reach an API or metrics without a token; the message names every way out."""


def host_name(authority: str) -> str:
    """Return the name in `name`, `name:port` or `[address]:port`, in lower case; empty when it is none of them."""
    parts = _AUTHORITY.fullmatch(authority.strip().lower())
    return parts[1].strip("[]").removesuffix(".") if parts else ""


def is_loopback(name: str) -> bool:
    """Whether a host's name or address means this machine and nobody else."""
    name = name.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """Return the names of ALLOWED_HOSTS."""
    return frozenset(filter(None, map(host_name, settings.allowed_hosts.split(","))))


def needs_token(settings: Settings) -> bool:
    """Whether the API answers only requests with a token: AUTH, or CLUSTER_TOKEN, or who could reach it says so."""
    return settings.auth == "required" or bool(settings.cluster_tokens()) or not _published_on_loopback(settings)


def _published_on_loopback(settings: Settings) -> bool:
    where = settings.published or settings.bind
    return where == "loopback" or is_loopback(where)


def check_api(settings: Settings) -> None:
    """Raise Exposed when the API would listen for strangers without a token."""
    if settings.auth != "required" and not settings.cluster_tokens() and not _published_on_loopback(settings):
        where = settings.published or settings.bind
        raise Exposed(
            f"the API would be reached at {where} without a token, and whoever reaches it commands the cluster:"
            " set CLUSTER_TOKEN (openssl rand -hex 24), or AUTH=required where there are API tokens already, or"
            " BIND=127.0.0.1; in a container publish its port on"
            " loopback (-p 127.0.0.1:3000:3000) and set PUBLISHED=loopback"
        )


def check_metrics(settings: Settings) -> None:
    """Raise Exposed when metrics would be read by strangers without a token."""
    where = settings.metrics_published or settings.published or settings.bind
    closed = where in ("loopback", "internal") or is_loopback(where)
    if settings.metrics_port and not settings.metrics_token and not closed:
        raise Exposed(
            f"the metrics on port {settings.metrics_port} would be reached at {where} without a token: set"
            " METRICS_TOKEN, or METRICS_PORT=0, or BIND=127.0.0.1; where only a network of your own reaches them, as in"
            " a container that does not publish the port, set METRICS_PUBLISHED=internal"
        )


def check(settings: Settings) -> None:
    """Raise Exposed with the complaints of both in one message."""
    complaints = []
    for one in (check_api, check_metrics):
        try:
            one(settings)
        except Exposed as error:
            complaints.append(str(error))
    if complaints:
        raise Exposed("; and ".join(complaints))
