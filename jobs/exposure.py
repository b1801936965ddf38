"""Who could reach what a process serves, by its settings; asked before it starts to listen."""

from __future__ import annotations

from ipaddress import ip_address

from jobs.settings import Settings

#: Exit code of a process that refuses its settings.
REFUSED = 2


class Exposed(Exception):
    """Strangers could reach an API or metrics without a token; the message names every way out."""


def is_loopback(name: str) -> bool:
    """Whether a host's name or address means this machine and nobody else."""
    name = name.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def check_api(chosen: Settings) -> None:
    """Raises Exposed when the API would listen for strangers without a token."""
    where = chosen.published or chosen.bind
    if not chosen.cluster_token and where != "loopback" and not is_loopback(where):
        raise Exposed(
            f"the API would be reached at {where} without a token, and whoever reaches it commands the cluster:"
            " set CLUSTER_TOKEN (openssl rand -hex 24), or BIND=127.0.0.1; in a container publish its port on"
            " loopback (-p 127.0.0.1:3000:3000) and set PUBLISHED=loopback"
        )


def check_metrics(chosen: Settings) -> None:
    """Raises Exposed when metrics would be read by strangers without a token."""
    where = chosen.metrics_published or chosen.published or chosen.bind
    closed = where in ("loopback", "internal") or is_loopback(where)
    if chosen.metrics_port and not chosen.metrics_token and not closed:
        raise Exposed(
            f"the metrics on port {chosen.metrics_port} would be reached at {where} without a token: set METRICS_TOKEN,"
            " or METRICS_PORT=0, or BIND=127.0.0.1; where only a network of your own reaches them, as in a container"
            " that does not publish the port, set METRICS_PUBLISHED=internal"
        )


def check(chosen: Settings) -> None:
    """Both, in one message."""
    told = []
    for one in (check_api, check_metrics):
        try:
            one(chosen)
        except Exposed as error:
            told.append(str(error))
    if told:
        raise Exposed("; and ".join(told))
